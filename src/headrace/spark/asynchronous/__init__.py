"""Asynchronous processors in Spark's Python worker: awaitable state, and the loop that runs them."""
