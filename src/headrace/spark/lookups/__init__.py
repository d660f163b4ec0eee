"""Static tables beside streams: sealed generations of a table, and when the next one is written."""
