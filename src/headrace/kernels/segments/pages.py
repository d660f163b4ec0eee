"""Pages of a section's index: verified, and joined to the columns that lookups read.

A page is `firsts[n] · offsets[n + 1] · row starts[n + 1] · checks[n] · filter`, a slice of the columns over
all blocks of the section. Joined pages that do not adjoin have a block without a filter between them, so
that block `b` ends where `b + 1` begins. Its virtual rows keep the filters of the next page in place:
positions of filters follow from the row starts modulo 64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.core.checksum import xxh64
from headrace.kernels.core.filter import filter_start
from headrace.kernels.core.signature import HASHES, HASHES_IN, IDS, IDS_IN
from headrace.kernels.core.signature import I64 as INT
from headrace.kernels.segments.lookup import _pread
from headrace.row.arrays import I64, U64


@njit([INT(types.int32, IDS_IN, IDS_IN, HASHES_IN, HASHES)], nogil=True, cache=True)
def read_pages(fd: int, starts: I64, ends: I64, checks: U64, out: U64) -> int:
    """Reads the byte ranges of pages one after another into `out`.

    Returns the first page that could not be read or fails its checksum, or -1.
    """
    at: Any = 0
    for p in range(starts.size):
        size = ends[p] - starts[p]
        page = out[at : at + (size >> 3)]
        if _pread(fd, page.ctypes, np.uint64(size), starts[p]) != size or xxh64(page) != checks[p]:
            return p
        at += size >> 3
    return -1


_COLUMNS = types.Tuple((HASHES, IDS, IDS, HASHES, HASHES, INT))


@njit([_COLUMNS(HASHES_IN, IDS_IN, IDS_IN, HASHES_IN)], nogil=True, cache=True)
def join_pages(data: U64, sizes: I64, blocks: I64, nexts: U64) -> tuple[U64, I64, I64, U64, U64, int]:
    """Firsts, offsets, row starts, checks and filters of ordered pages with these words and blocks.

    Returns the bytes of the largest block too.

    `nexts[p]` is the first hash after page p, for the empty block that follows it; it has no meaning where
    the next page adjoins, or is missing.
    """
    pages, total = sizes.size, 0
    for p in range(pages):
        total += blocks[p] + 1
    firsts, checks = np.empty(total, np.uint64), np.empty(total, np.uint64)
    offsets, rows = np.empty(total + 1, np.int64), np.empty(total + 1, np.int64)
    filters = np.zeros(data.size + 16 * (pages + 1), np.uint64)
    at: Any = 0  # in data
    b: Any = 0
    row: Any = 0  # virtual rows before block b
    largest: Any = 0
    for p in range(pages):
        n = blocks[p]
        starts = at + 2 * n + 1  # of the row starts
        real = np.int64(data[starts])
        if p == 0:
            row = real & 63
        elif np.int64(data[at + n]) != offsets[b]:  # the page does not adjoin
            firsts[b], checks[b], rows[b] = nexts[p - 1], np.uint64(0), row
            b += 1
            row += (real - row) & 63
        for i in range(n):
            firsts[b + i] = data[at + i]
            offsets[b + i] = np.int64(data[at + n + i])
            rows[b + i] = row + np.int64(data[starts + i]) - real
            checks[b + i] = data[starts + n + 1 + i]
            largest = max(largest, np.int64(data[at + n + i + 1]) - np.int64(data[at + n + i]))
        ended: Any = row + np.int64(data[starts + n]) - real
        words = at + 4 * n + 2
        place = filter_start(row, b)
        for w in range(filter_start(ended, b + n) - filter_start(row, b)):
            filters[place + w] = data[words + w]
        b += n
        offsets[b], rows[b] = np.int64(data[at + 2 * n]), ended
        row = ended
        at += sizes[p]
    columns = firsts[:b].copy(), offsets[: b + 1].copy(), rows[: b + 1].copy(), checks[:b].copy()
    return columns[0], columns[1], columns[2], columns[3], filters, largest
