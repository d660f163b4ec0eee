"""Values in a byte heap: a word is `offset << 24 | length` (see `row/layout.py`)."""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core.signature import HASHES_IN, HEAP, HEAP_IN, I64, OFFSETS_IN, Scalar
from headrace.row.arrays import U8, U64
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX

# Positions of a heap's counters: its end, and the bytes that no row points at.
USED, GARBAGE = 0, 1

_BITS = np.uint64(LENGTH_BITS)
_MAX = np.uint64(LENGTH_MAX)


@njit(nogil=True, cache=True)
def length(word: np.uint64) -> np.int64:
    return np.int64(word & _MAX)


@njit(nogil=True, cache=True)
def offset(word: np.uint64) -> np.int64:
    return np.int64(word >> _BITS)


@njit(nogil=True, cache=True)
def pointer(at: np.int64, size: np.int64) -> np.uint64:
    """The word of `size` bytes at `at`; an empty value is always the zero word."""
    if size == 0:
        return np.uint64(0)
    return (np.uint64(at) << _BITS) | np.uint64(size)


@njit(nogil=True, cache=True)
def same(left: np.uint64, left_heap: U8, right: np.uint64, right_heap: U8) -> bool:
    """Whether two words point at equal bytes."""
    size = length(left)
    if size != length(right):
        return False
    i, j = offset(left), offset(right)
    for step in range(size):  # noqa: SIM110 (plain loops compile best)
        if left_heap[i + step] != right_heap[j + step]:
            return False
    return True


@njit(nogil=True, cache=True)
def compare(left: np.uint64, left_heap: U8, right: np.uint64, right_heap: U8) -> Scalar:
    """-1, 0 or 1: compares unsigned bytes from the first on; a prefix is smaller than a longer value."""
    left_size, right_size = length(left), length(right)
    i, j = offset(left), offset(right)
    for step in range(min(left_size, right_size)):
        a, b = left_heap[i + step], right_heap[j + step]
        if a != b:
            return -1 if a < b else 1
    if left_size == right_size:
        return 0
    return -1 if left_size < right_size else 1


@njit(nogil=True, cache=True)
def copy(source: U8, start: np.int64, target: U8, at: np.int64, size: np.int64) -> None:
    for step in range(size):
        target[at + step] = source[start + step]


@njit([(HASHES_IN, HEAP_IN, OFFSETS_IN, HEAP)], nogil=True, cache=True)
def unpack(words: U64, heap: U8, offsets: np.ndarray, out: U8) -> None:
    """Copies the values of `words` one after another to `offsets`, as in Arrow arrays."""
    for i in range(len(words)):
        copy(heap, offset(words[i]), out, np.int64(offsets[i]), length(words[i]))


@njit([I64(HASHES_IN)], nogil=True, cache=True)
def total(words: U64) -> int:
    """Bytes that `words` point at."""
    size = 0
    for i in range(len(words)):
        size += length(words[i])
    return size
