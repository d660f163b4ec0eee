"""Kernels over segments: lookup, merge, entries, newest row."""
