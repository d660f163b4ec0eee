"""The index of one section in memory: where each block lies, which hashes it begins with, and its filter.

Invariants: it was verified before it was built, and never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.format.segment import SectionEntry
from headrace.rows.arrays import I64, U64

_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class BlockIndex:
    """Columns over the blocks of a section; `offsets` and `row_starts` have one more, the end."""

    firsts: U64
    offsets: I64
    row_starts: I64
    checks: U64
    filters: U64
    last: int  # the largest hash of the section
    nbytes: int
    read_words: int  # room for the largest block, and for a few small ones

    @classmethod
    def of(cls, entry: SectionEntry, data: U64) -> BlockIndex:
        """The index whose words are `data`."""
        n = entry.blocks
        firsts, checks, filters = data[:n], data[3 * n + 2 : 4 * n + 2], data[4 * n + 2 :]
        offsets: I64 = data[n : 2 * n + 1].view(np.int64)
        row_starts: I64 = data[2 * n + 1 : 3 * n + 2].view(np.int64)
        room = max(int((offsets[1:] - offsets[:-1]).max()), _READ_BYTES) // 8
        return cls(firsts, offsets, row_starts, checks, filters, entry.max_hash, data.nbytes, room)

    def blocks_between(self, low: int, high: int) -> tuple[int, int]:
        """The blocks `[first, end)` that may hold hashes in `[low, high)`."""
        if high <= low or low > self.last:
            return 0, 0
        first = int(np.searchsorted(self.firsts, np.uint64(low), "right")) - 1
        return max(first, 0), int(np.searchsorted(self.firsts, np.uint64(high - 1), "right"))

    def blocks_of_rows(self, first: int, rows: int) -> int:
        """The end of the blocks from `first` on that hold about `rows` rows; at least one block."""
        row = self.row_starts[first] + rows
        return max(first + 1, int(np.searchsorted(self.row_starts, row, "right")) - 1)

    def rows_below(self, hashed: int) -> int:
        """About how many rows have a smaller hash: exact where a block begins, interpolated inside."""
        if hashed > self.last:
            return int(self.row_starts[-1])
        block = int(np.searchsorted(self.firsts, np.uint64(hashed), "right")) - 1
        if block < 0:
            return 0
        start = int(self.firsts[block])
        end = int(self.firsts[block + 1]) if block + 1 < len(self.firsts) else self.last + 1
        row, rows = int(self.row_starts[block]), int(self.row_starts[block + 1] - self.row_starts[block])
        return row + rows * (hashed - start) // (end - start)
