"""Bags: the rows of one key packed into one value of a heap.

    bag = number of rows · rows (words behind the key, little endian) · bytes of variable words

The offset of a packed variable word counts from the beginning of its bag, so a bag can be moved as it is.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core import bytes as heap_bytes
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
    Scalar,
)
from headrace.kernels.core.signature import I64 as INT
from headrace.row.arrays import I64, U8, U64, Flags

_MIX = np.uint64(0x9E3779B97F4A7C15)
_BYTE = np.uint64(0xFF)


@njit(nogil=True, cache=True)
def _put(heap: U8, at: int, word: np.uint64) -> None:
    for byte in range(8):
        heap[at + byte] = np.uint8((word >> np.uint64(8 * byte)) & _BYTE)


@njit(nogil=True, cache=True)
def _get(heap: U8, at: int) -> Scalar:
    word = np.uint64(0)
    for byte in range(8):
        word |= np.uint64(heap[at + byte]) << np.uint64(8 * byte)
    return word


@njit([IDS(WORDS_IN, IDS_IN, IDS_IN, INT, VALID_IN)], nogil=True, cache=True)
def sizes(words: U64, rows: I64, offsets: I64, start: int, variable: Flags) -> I64:
    """Bytes of each group's bag; group g has `rows[offsets[g]:offsets[g + 1]]`. An empty bag has none."""
    groups, width = len(offsets) - 1, words.shape[1]
    made = np.zeros(groups, np.int64)
    for group in range(groups):
        count = offsets[group + 1] - offsets[group]
        if count == 0:
            continue
        size = 8 + 8 * count * (width - start)
        for at in range(offsets[group], offsets[group + 1]):
            for word in range(start, width):
                if variable[word]:
                    size += heap_bytes.length(words[rows[at], word])
        made[group] = size
    return made


@njit([(WORDS_IN, HEAP_IN, IDS_IN, IDS_IN, INT, VALID_IN, IDS_IN, HEAP)], nogil=True, cache=True)
def pack(
    words: U64, heap: U8, rows: I64, offsets: I64, start: int, variable: Flags, begins: I64, out: U8
) -> None:
    """Writes the bags of all groups to `begins`; words before `start` are the key's and are left out."""
    width = words.shape[1]
    for group in range(len(offsets) - 1):
        first, end = offsets[group], offsets[group + 1]
        if first == end:
            continue
        begin = begins[group]
        _put(out, begin, np.uint64(end - first))
        at = begin + 8
        used = at + 8 * (end - first) * (width - start)
        for index in range(first, end):
            for word in range(start, width):
                value = words[rows[index], word]
                if variable[word]:
                    size = heap_bytes.length(value)
                    heap_bytes.copy(heap, heap_bytes.offset(value), out, used, size)
                    value = heap_bytes.pointer(used - begin, size)
                    used += size
                _put(out, at, value)
                at += 8


@njit([IDS(HASHES_IN, HEAP_IN)], nogil=True, cache=True)
def counts(bags: U64, heap: U8) -> I64:
    """The number of rows in each bag."""
    made = np.zeros(len(bags), np.int64)
    for group in range(len(bags)):
        if heap_bytes.length(bags[group]) > 0:
            made[group] = np.int64(_get(heap, heap_bytes.offset(bags[group])))
    return made


@njit([(HASHES_IN, HEAP_IN, WORDS_IN, IDS_IN, INT, VALID_IN, WORDS)], nogil=True, cache=True)
def unpack(bags: U64, heap: U8, keys: U64, offsets: I64, start: int, variable: Flags, out: U64) -> None:
    """Copies the rows of all bags, behind the key words of their group; they point into the same heap."""
    width = out.shape[1]
    for group in range(len(bags)):
        begin = heap_bytes.offset(bags[group])
        at = begin + 8
        for row in range(offsets[group], offsets[group + 1]):
            for word in range(start):
                out[row, word] = keys[group, word]
            for word in range(start, width):
                value = _get(heap, at)
                if variable[word]:
                    size = heap_bytes.length(value)
                    value = heap_bytes.pointer(begin + heap_bytes.offset(value), size)
                out[row, word] = value
                at += 8


@njit([HASHES(WORDS_IN, HEAP_IN, IDS_IN, INT, VALID_IN)], nogil=True, cache=True)
def content_hashes(words: U64, heap: U8, of_row: I64, start: int, variable: Flags) -> U64:
    """A hash of each row's group and of all that it holds behind its key."""
    made = np.empty(len(words), np.uint64)
    for row in range(len(words)):
        mixed = np.uint64(of_row[row]) * _MIX
        for word in range(start, words.shape[1]):
            value = words[row, word]
            if variable[word]:
                begin, size = heap_bytes.offset(value), heap_bytes.length(value)
                value = np.uint64(size)
                for step in range(size):
                    value = (value ^ np.uint64(heap[begin + step])) * _MIX
                    value ^= value >> np.uint64(29)
            mixed = (mixed ^ value) * _MIX
            mixed ^= mixed >> np.uint64(32)
        made[row] = mixed
    return made
