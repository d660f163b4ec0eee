"""Generators of benchmark events: pure NumPy and Arrow, no Spark."""
