"""Immutable files of rows: reader, writer, block index, merges, compaction."""
