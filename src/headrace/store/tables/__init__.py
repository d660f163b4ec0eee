"""Tables in memory: rows with an index over them."""
