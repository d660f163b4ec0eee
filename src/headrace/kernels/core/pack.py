"""Rows to blocks and back: cutting, filling, verifying and unpacking the blocks of a segment.

A block is `hashes[n] · rows[n, width] · heap`, padded with zeros to whole 64-bit words. Its variable words
point into its own heap. Rows of equal hash always share a block, so a lookup reads one block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.core.checksum import xxh64
from headrace.kernels.core.filter import filter_add, filter_start
from headrace.kernels.core.signature import HASHES, HASHES_IN, HEAP_IN, IDS, IDS_IN, WORDS, WORDS_IN
from headrace.kernels.core.signature import I64 as INT
from headrace.row.arrays import I64, U8, U64
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX

_BITS = np.uint64(LENGTH_BITS)
_LENGTH = np.uint64(LENGTH_MAX)


@njit([types.Tuple((IDS, IDS, types.boolean))(HASHES_IN, WORDS_IN, IDS_IN, INT)], nogil=True, cache=True)
def cut_blocks(hashes: U64, words: U64, variable: I64, block_bytes: int) -> tuple[I64, I64, bool]:
    """First row of each block (and the end), first word of each block (and the end), and whether rows are
    ordered.
    """
    n, width = words.shape
    starts = np.empty(n + 1, np.int64)
    offsets = np.empty(n + 1, np.int64)
    starts[0] = offsets[0] = 0
    blocks, fixed, heap = 0, 0, 0
    for i in range(n):
        more: Any = 0
        for v in variable:
            more += np.int64(words[i, v] & _LENGTH)
        if i > 0:
            if hashes[i] < hashes[i - 1]:
                return starts[:1], offsets[:1], False
            full = fixed * 8 + heap + (width + 1) * 8 + more > block_bytes
            if full and hashes[i] != hashes[i - 1]:
                blocks += 1
                starts[blocks] = i
                offsets[blocks] = offsets[blocks - 1] + fixed + (heap + 7) // 8
                fixed, heap = 0, 0
        fixed += width + 1
        heap += more
    if n:
        blocks += 1
        starts[blocks] = n
        offsets[blocks] = offsets[blocks - 1] + fixed + (heap + 7) // 8
    return starts[: blocks + 1].copy(), offsets[: blocks + 1].copy(), True


@njit(nogil=True, cache=True)
def move_heap(rows: U64, variable: I64, heap: U8, to: U8) -> None:
    """Copies the values of `rows` into `to` and repoints the rows."""
    at: Any = 0
    for r in range(rows.shape[0]):
        for v in variable:
            word = rows[r, v]
            length = np.int64(word & _LENGTH)
            if length == 0:
                rows[r, v] = np.uint64(0)
                continue
            start = np.int64(word >> _BITS)
            for k in range(length):
                to[at + k] = heap[start + k]
            rows[r, v] = (np.uint64(at) << _BITS) | np.uint64(length)
            at += length


@njit(
    [HASHES(HASHES_IN, WORDS_IN, HEAP_IN, IDS_IN, IDS_IN, IDS_IN, INT, INT, HASHES)], nogil=True, cache=True
)
def fill_blocks(
    hashes: U64,
    words: U64,
    heap: U8,
    variable: I64,
    starts: I64,
    offsets: I64,
    first: int,
    end: int,
    out: U64,
) -> U64:
    """Writes blocks `[first, end)` to the front of `out`; returns their checksums."""
    width = words.shape[1]
    checks = np.empty(end - first, np.uint64)
    for b in range(first, end):
        row, rows = starts[b], starts[b + 1] - starts[b]
        block = out[offsets[b] - offsets[first] : offsets[b + 1] - offsets[first]]
        block[:rows] = hashes[row : row + rows]
        fixed = rows * (width + 1)
        block_rows = block[rows:fixed].reshape(rows, width)
        block_rows[:] = words[row : row + rows]
        if fixed < block.size:
            block[block.size - 1] = np.uint64(0)
        if variable.size:
            move_heap(block_rows, variable, heap, block[fixed:].view(np.uint8))
        checks[b - first] = xxh64(block)
    return checks


@njit([(HASHES_IN, IDS_IN, INT, INT, HASHES)], nogil=True, cache=True)
def fill_filter(hashes: U64, starts: I64, row_start: int, block_start: int, words: U64) -> None:
    """Fills the filter words of a run's blocks, after `row_start` rows and `block_start` blocks."""
    base = filter_start(row_start, block_start)
    for b in range(starts.size - 1):
        start = filter_start(row_start + starts[b], block_start + b) - base
        end = filter_start(row_start + starts[b + 1], block_start + b + 1) - base
        for i in range(starts[b], starts[b + 1]):
            filter_add(words, start, end, hashes[i])


@njit([INT(HASHES_IN, IDS_IN, HASHES_IN, INT, INT)], nogil=True, cache=True)
def bad_block(data: U64, offsets: I64, checks: U64, first: int, end: int) -> int:
    """The first of the blocks `[first, end)` in `data` that fails its checksum, or -1."""
    base = offsets[first]
    for b in range(first, end):
        if xxh64(data[(offsets[b] - base) >> 3 : (offsets[b + 1] - base) >> 3]) != checks[b]:
            return b
    return -1


@njit([(HASHES_IN, IDS_IN, IDS_IN, INT, INT, IDS_IN, HASHES, WORDS, HASHES)], nogil=True, cache=True)
def unpack(
    data: U64,
    offsets: I64,
    row_starts: I64,
    first: int,
    end: int,
    variable: I64,
    hashes: U64,
    words: U64,
    heap: U64,
) -> None:
    """Unpacks the rows of the blocks `[first, end)` in `data`; `heap` receives their heaps in sequence."""
    width = words.shape[1]
    row, used = 0, 0
    for b in range(first, end):
        block = data[(offsets[b] - offsets[first]) >> 3 : (offsets[b + 1] - offsets[first]) >> 3]
        rows = row_starts[b + 1] - row_starts[b]
        fixed = rows * (width + 1)
        hashes[row : row + rows] = block[:rows]
        words[row : row + rows] = block[rows:fixed].reshape(rows, width)
        heap[used : used + block.size - fixed] = block[fixed:]
        shift = np.uint64(used * 8) << _BITS
        for i in range(row, row + rows):
            for v in variable:
                if words[i, v]:
                    words[i, v] += shift
        row += rows
        used += block.size - fixed
