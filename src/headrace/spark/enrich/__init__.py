"""Enrichment: columns from a key-value store outside, added to a stream."""
