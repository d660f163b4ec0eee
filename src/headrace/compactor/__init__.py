"""The compactor: a process without state that merges segments on shared storage for hosts elsewhere."""
