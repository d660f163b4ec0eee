"""State with the names and the types of the user: wire columns in, columns of a table out."""
