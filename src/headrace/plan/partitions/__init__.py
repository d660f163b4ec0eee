"""Partitions of an operator: their hash groups, and how many there were at which version."""
