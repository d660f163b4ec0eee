"""The store of joins without a window: rows of both sides, and the pairs of each epoch."""
