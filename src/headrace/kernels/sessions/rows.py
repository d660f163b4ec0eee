"""Rows of whole hashes: read from segments, and merged so that the newest source of a hash wins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from headrace.kernels.core.checksum import xxh64
from headrace.kernels.core.signature import HASHES, HASHES_IN, HEAP, IDS, IDS_IN, WORDS
from headrace.kernels.core.signature import I64 as INT
from headrace.kernels.segments.lookup import _lower_bound, _pread, _read_end, _take, announce
from headrace.row.arrays import U8, U64, Ids

_FLAGS = types.Array(types.boolean, 1, "C")
_FETCHED = types.Tuple((INT, IDS, WORDS, HEAP))(
    types.int32, HASHES_IN, IDS_IN, IDS_IN, IDS_IN, IDS_IN, HASHES_IN, HASHES, INT, IDS_IN
)


@njit([_FETCHED], nogil=True, cache=True)
def fetch_all(
    fd: int,
    hashes: U64,
    variable: Ids,
    blocks: Ids,
    offsets: Ids,
    row_starts: Ids,
    checks: U64,
    buffer: U64,
    width: int,
    turns: Ids,
) -> tuple[int, Ids, U64, U8]:
    """All rows of the ordered, distinct hashes, from the blocks that `locate` returned.

    Returns the block that could not be read or failed its checksum (or -1), the position in `hashes` of
    each row's hash, the rows and their heap. `buffer` must fit the largest block. Adjacent blocks share a
    read, unless each hash is read separately in the order of `turns`.
    """
    of_row = np.empty(hashes.size, np.int64)
    words = np.empty((hashes.size, width), np.uint64)
    heap = np.empty(0, np.uint8)
    used, n, first, end = 0, 0, 0, 0
    alone = turns.size > 0
    if not alone:
        announce(fd, blocks, offsets, buffer.size * 8)
    for turn in range(hashes.size):
        i = turns[turn] if alone else turn
        b = blocks[i]
        if b < 0:
            continue
        if b >= end or alone:
            first = b
            end = b + 1 if alone else _read_end(blocks, i, offsets, buffer.size * 8)
            size = offsets[end] - offsets[first]
            if _pread(fd, buffer.ctypes, np.uint64(size), offsets[first]) != size:
                return first, of_row[:0].copy(), words[:0].copy(), heap
            for c in range(first, end):
                part = buffer[(offsets[c] - offsets[first]) >> 3 : (offsets[c + 1] - offsets[first]) >> 3]
                if xxh64(part) != checks[c]:
                    return c, of_row[:0].copy(), words[:0].copy(), heap
        block = buffer[(offsets[b] - offsets[first]) >> 3 : (offsets[b + 1] - offsets[first]) >> 3]
        rows = row_starts[b + 1] - row_starts[b]
        block_rows = block[rows : rows * (width + 1)].reshape(rows, width)
        block_heap = block[rows * (width + 1) :].view(np.uint8)
        at = _lower_bound(block[:rows], hashes[i])
        while at < rows and block[at] == hashes[i]:
            if n == of_row.size:
                more_of, more = np.empty(2 * n, np.int64), np.empty((2 * n, width), np.uint64)
                more_of[:n], more[:n] = of_row, words
                of_row, words = more_of, more
            heap, used = _take(block_rows[at], block_heap, variable, words[n], heap, used)
            of_row[n] = i
            n += 1
            at += 1
    return -1, of_row[:n].copy(), words[:n].copy(), heap[:used].copy()


@njit([IDS(HASHES_IN, IDS_IN)], nogil=True, cache=True)
def newest_order(hashes: U64, bounds: Ids) -> Ids:
    """The rows to keep of ordered runs: for each hash all rows of the first run that has it.

    Run r is the rows `[bounds[r], bounds[r + 1])`.
    """
    runs = bounds.size - 1
    at = bounds[:-1].copy()
    order = np.empty(hashes.size, np.int64)
    used = 0
    while True:
        best = -1
        for r in range(runs):  # few runs: a scan beats a heap
            if at[r] < bounds[r + 1] and (best < 0 or hashes[at[r]] < hashes[at[best]]):
                best = r
        if best < 0:
            return order[:used].copy()
        hashed = hashes[at[best]]
        for r in range(runs):
            while at[r] < bounds[r + 1] and hashes[at[r]] == hashed:
                if r == best:
                    order[used] = at[r]
                    used += 1
                at[r] += 1


@njit([_FLAGS(HASHES_IN, HASHES_IN)], nogil=True, cache=True)
def among(hashes: U64, others: U64) -> npt.NDArray[np.bool_]:
    """Flags the hashes that are among the others; both are ordered."""
    flags = np.zeros(hashes.size, np.bool_)
    at = 0
    for i in range(hashes.size):
        while at < others.size and others[at] < hashes[i]:
            at += 1
        if at == others.size:
            break
        flags[i] = others[at] == hashes[i]
    return flags


@njit([IDS(HASHES_IN, HASHES_IN)], nogil=True, cache=True)
def places(stored: U64, requested: U64) -> Ids:
    """The positions in `stored` of the requested hashes, equal ones included; both are ordered."""
    positions = np.empty(requested.size, np.int64)
    n, at = 0, 0
    for i in range(requested.size):
        end = stored.size
        while at < end:
            middle = (at + end) >> 1
            if stored[middle] < requested[i]:
                at = middle + 1
            else:
                end = middle
        while at < stored.size and stored[at] == requested[i]:
            if n == positions.size:
                more = np.empty(2 * n, np.int64)
                more[:n] = positions
                positions = more
            positions[n] = at
            n += 1
            at += 1
    return positions[:n].copy()
