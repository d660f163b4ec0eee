"""Rows of a store: Arrow to words and back, kept rows, slices, groups."""
