"""The index of a section in pages: what the writer cuts, and the directory by which a reader finds pages.

    directory = firsts[p] · page offsets[p + 1] · block starts[p + 1] · row starts[p + 1] · checks[p]

Invariants: a directory was verified before it was made, and never changes. A page is a slice of the columns
over all blocks, so that all pages together are the index as it was in format version 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headrace.kernels.core.checksum import xxh64
from headrace.kernels.core.filter import filter_start
from headrace.row.arrays import I64, U64


class Columns(NamedTuple):
    """Columns over the blocks of a section; `offsets` and `row_starts` have one more, the end."""

    firsts: U64
    offsets: I64
    row_starts: I64
    checks: U64
    filters: U64

    def pages(self, page_blocks: int) -> list[U64]:
        """The columns in pages of so many blocks."""
        return [
            self._page(first, min(first + page_blocks, len(self.firsts)))
            for first in range(0, len(self.firsts), page_blocks)
        ]

    def _page(self, first: int, end: int) -> U64:
        rows = self.row_starts
        filters = slice(int(filter_start(rows[first], first)), int(filter_start(rows[end], end)))
        return np.concatenate(
            [
                self.firsts[first:end],
                self.offsets[first : end + 1].view(np.uint64),
                rows[first : end + 1].view(np.uint64),
                self.checks[first:end],
                self.filters[filters],
            ]
        )

    def directory(self, pages: list[U64], start: int, page_blocks: int) -> U64:
        """The directory of pages that begin at byte `start`."""
        sizes = [page.nbytes for page in pages]
        offsets = np.cumsum([start, *sizes], dtype=np.int64)
        blocks = np.append(np.arange(0, len(self.firsts), page_blocks), len(self.firsts)).astype(np.int64)
        checks = np.array([xxh64(page) for page in pages], np.uint64)
        numbers = [column.view(np.uint64) for column in (offsets, blocks, self.row_starts[blocks])]
        return np.concatenate([self.firsts[blocks[:-1]], *numbers, checks])


@dataclass(frozen=True)
class Directory:
    """Where the pages of a section are."""

    firsts: U64
    offsets: I64
    blocks: I64
    row_starts: I64
    checks: U64
    last: int  # the largest hash of the section
    nbytes: int

    @classmethod
    def of(cls, pages: int, last: int, data: U64) -> Directory:
        """The directory whose words are `data`."""
        cuts = np.cumsum([pages, pages + 1, pages + 1, pages + 1])
        firsts, offsets, blocks, rows, checks = np.split(data, cuts)
        numbers = (offsets.view(np.int64), blocks.view(np.int64), rows.view(np.int64))
        return cls(firsts, *numbers, checks, last, data.nbytes)

    def touched(self, hashes: U64) -> I64:
        """The pages that ordered hashes may be in."""
        inside = hashes[(hashes >= self.firsts[0]) & (hashes <= np.uint64(self.last))]
        pages: I64 = np.unique(np.searchsorted(self.firsts, inside, "right") - 1)
        return pages

    def between(self, low: int, high: int) -> I64:
        """The pages that may hold hashes in `[low, high)`."""
        if high <= low or low > self.last:
            return np.empty(0, np.int64)
        first = max(0, int(np.searchsorted(self.firsts, np.uint64(low), "right")) - 1)
        return np.arange(
            first, int(np.searchsorted(self.firsts, np.uint64(high - 1), "right")), dtype=np.int64
        )

    def nexts(self, pages: I64) -> U64:
        """The first hash after each page."""
        return np.append(self.firsts[1:], np.uint64(0))[pages]
