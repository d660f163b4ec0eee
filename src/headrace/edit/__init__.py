"""Writing state: a table becomes a new version of a stopped query's operator."""
