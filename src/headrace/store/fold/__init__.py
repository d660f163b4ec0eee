"""Stores that fold rows in place: running aggregates, final windows, slices."""
