"""How many rows are handled at a time, by purpose. Each number is defined once."""

from __future__ import annotations

KERNEL_ROWS = 1 << 13  # so few stay in the processor's cache from one accumulator to the next
REWRITE_ROWS = 1 << 15  # rows of a compaction or a move that are in memory at a time
SCAN_ROWS = 1 << 15  # rows that a reader of stored state has in memory at a time
READ_ROWS = 1 << 16  # rows that are read at once when windows or sessions close
MERGE_ROWS = 1 << 16  # rows in memory while segments are merged for results
RESULT_ROWS = 1 << 16  # rows of one Arrow batch of results
