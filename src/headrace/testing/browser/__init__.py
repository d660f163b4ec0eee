"""A headless browser for tests and for the pictures of the documentation."""
