"""The stateful task in Spark's Python workers."""
