"""Works over changing results: retraction, rows of a rank, distinct values."""
