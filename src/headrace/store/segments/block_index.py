"""The index of one section in memory: where each block lies, which hashes it begins with, and its filter.

Invariants: it was verified before it was built, and never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.format.segment import SectionEntry
from headrace.row.arrays import I64, U64
from headrace.store.segments.index_pages import Columns

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

    @classmethod
    def joined(cls, columns: Columns, last: int, largest: int) -> BlockIndex:
        """The index of some pages of a section, whose largest block has so many bytes."""
        nbytes = sum(column.nbytes for column in columns)
        return cls(*columns, last, nbytes, max(largest, _READ_BYTES) // 8)

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
        return rows_below(self.firsts, self.row_starts, self.last, hashed)


def rows_below(firsts: U64, row_starts: I64, last: int, hashed: int) -> int:
    """About how many rows have a smaller hash: exact where a part begins, interpolated inside."""
    if hashed > last:
        return int(row_starts[-1])
    part = int(np.searchsorted(firsts, np.uint64(hashed), "right")) - 1
    if part < 0:
        return 0
    start = int(firsts[part])
    end = int(firsts[part + 1]) if part + 1 < len(firsts) else last + 1
    row, rows = int(row_starts[part]), int(row_starts[part + 1] - row_starts[part])
    return row + rows * (hashed - start) // (end - start)
