"""Kernels over groups of kept rows: group, sort, join."""
