"""The live view: pages in a browser for a running application, or for the history of a query."""
