"""Joins of two streams in Spark's plan: the request, its keys, and rows of both sides."""
