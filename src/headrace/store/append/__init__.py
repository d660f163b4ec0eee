"""Stores that keep rows: by hash, by time, in buckets of time."""
