"""Stores of results that change: before-images, differences, and the kinds of changes."""
