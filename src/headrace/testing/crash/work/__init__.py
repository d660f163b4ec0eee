"""The queries of crash runs: what they compute, and what their state must be."""
