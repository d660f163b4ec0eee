"""Rows to the keys and values of a key-value store, and back.

    key   = kind (1 byte) · section (8) · order key (8) · the row's own key words and their bytes
    value = order key · flush · rows n · rows[n, width] · heap, padded to whole words

Numbers in keys are big-endian, so that bytes sort as numbers do; the section is biased by 1 << 63. A
variable word of a key is its length, and its bytes follow all words. Variable words of a value point into
its own heap. `flush` is the number of the flush that wrote the value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.core.bytes import copy, length, offset, pointer
from headrace.kernels.core.signature import (
    HASHES,
    HASHES_IN,
    HEAP,
    HEAP_IN,
    IDS,
    IDS_IN,
    VALID_IN,
    WORDS,
    WORDS_IN,
)
from headrace.kernels.core.signature import I64 as INT
from headrace.kernels.core.signature import U64 as WORD
from headrace.row.arrays import I64, U8, U64

PREFIX_BYTES = 17
HEADER_WORDS = 3
FLUSH_WORD = 1  # word of a value: the number of the flush that wrote it


@njit(nogil=True, cache=True)
def _big_endian(data: U8, at: int, number: np.uint64) -> None:
    for step in range(8):
        data[at + step] = np.uint8((number >> np.uint64(56 - 8 * step)) & np.uint64(255))


@njit([types.Tuple((IDS, HEAP))(INT, WORD, HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN)], nogil=True, cache=True)
def pack_keys(
    kind: int, section: np.uint64, hashes: U64, words: U64, heap: U8, variable: Any
) -> tuple[I64, U8]:
    """Offsets of the keys (and the end), and the bytes of all; `variable` has one flag per key word."""
    n, width = hashes.size, variable.size
    offsets = np.empty(n + 1, np.int64)
    offsets[0] = 0
    for i in range(n):
        size: Any = PREFIX_BYTES + 8 * width
        for w in range(width):
            if variable[w]:
                size += length(words[i, w])
        offsets[i + 1] = offsets[i] + size
    data = np.empty(offsets[n], np.uint8)
    for i in range(n):
        at: Any = offsets[i]
        data[at] = np.uint8(kind)
        _big_endian(data, at + 1, section)
        _big_endian(data, at + 9, hashes[i])
        tail: Any = at + PREFIX_BYTES + 8 * width
        for w in range(width):
            word = words[i, w]
            if variable[w]:
                size = length(word)
                copy(heap, offset(word), data, tail, size)
                tail += size
                word = np.uint64(size)
            _big_endian(data, at + PREFIX_BYTES + 8 * w, word)
    return offsets, data


@njit(
    [types.Tuple((IDS, HASHES))(HASHES_IN, WORDS_IN, HEAP_IN, IDS_IN, IDS_IN, WORD)], nogil=True, cache=True
)
def pack_values(
    hashes: U64, words: U64, heap: U8, variable: I64, starts: I64, flush: np.uint64
) -> tuple[I64, U64]:
    """Word offsets of the values (and the end), and all words; value g has the rows from starts[g]."""
    groups, width = starts.size - 1, words.shape[1]
    offsets = np.empty(groups + 1, np.int64)
    offsets[0] = 0
    for g in range(groups):
        heap_bytes: Any = 0
        for i in range(starts[g], starts[g + 1]):
            for v in variable:
                heap_bytes += length(words[i, v])
        rows = starts[g + 1] - starts[g]
        offsets[g + 1] = offsets[g] + HEADER_WORDS + rows * width + (heap_bytes + 7) // 8
    data = np.zeros(offsets[groups], np.uint64)
    as_bytes = data.view(np.uint8)
    for g in range(groups):
        rows = starts[g + 1] - starts[g]
        at: Any = offsets[g]
        data[at], data[at + FLUSH_WORD], data[at + 2] = hashes[starts[g]], flush, np.uint64(rows)
        base: Any = 8 * (at + HEADER_WORDS + rows * width)
        used: Any = 0
        for r in range(rows):
            row = starts[g] + r
            to: Any = at + HEADER_WORDS + r * width
            for w in range(width):
                data[to + w] = words[row, w]
            for v in variable:
                size = length(words[row, v])
                copy(heap, offset(words[row, v]), as_bytes, base + used, size)
                data[to + v] = pointer(used, size)
                used += size
    return offsets, data


@njit(
    [types.Tuple((HASHES, WORDS, HEAP))(HASHES_IN, IDS_IN, INT, IDS_IN)],
    nogil=True,
    cache=True,
)
def unpack_values(data: U64, offsets: I64, width: int, variable: I64) -> tuple[U64, U64, U8]:
    """The order key and the words of each row, and the heap of all rows."""
    values = offsets.size - 1
    n: Any = 0
    for g in range(values):
        n += np.int64(data[offsets[g] + 2])
    hashes, words = np.empty(n, np.uint64), np.empty((n, width), np.uint64)
    heap = np.empty(8 * (data.size - HEADER_WORDS * values - n * width), np.uint8)
    as_bytes = data.view(np.uint8)
    row: Any = 0
    used: Any = 0
    for g in range(values):
        at: Any = offsets[g]
        rows = np.int64(data[at + 2])
        start: Any = at + HEADER_WORDS + rows * width
        size: Any = 8 * (offsets[g + 1] - start)
        for r in range(rows):
            hashes[row] = data[at]
            for w in range(width):
                words[row, w] = data[at + HEADER_WORDS + r * width + w]
            for v in variable:
                word = words[row, v]
                words[row, v] = pointer(offset(word) + used, length(word))
            row += 1
        copy(as_bytes, 8 * start, heap, used, size)
        used += size
    return hashes, words, heap
