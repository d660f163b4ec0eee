"""Ordering by hash, and moving rows together with their heap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from headrace.kernels.core import bytes as heap_bytes
from headrace.kernels.core.signature import (
    HASHES,
    HASHES_IN,
    HEAP,
    HEAP_IN,
    I64,
    IDS,
    IDS_IN,
    STAMPS,
    WORDS,
    WORDS_IN,
)
from headrace.row.arrays import U8, U64, Ids

_DIGIT = 11
_BUCKETS = 1 << _DIGIT
_MOVES = 4  # moves per row after two digits; uniform hashes need far fewer


@njit(nogil=True, cache=True)
def _pass(keys: U64, order: Ids, next_keys: U64, next_order: Ids, shift: int, starts: Ids) -> bool:
    """Sorts stably by one digit. Returns False and moves nothing if all rows share the digit."""
    n, bits, mask = len(keys), np.uint64(shift), np.uint64(_BUCKETS - 1)
    starts[:] = 0
    for i in range(n):
        starts[(keys[i] >> bits) & mask] += 1
    if n == 0 or starts[(keys[0] >> bits) & mask] == n:
        return False
    begin = 0
    for bucket in range(_BUCKETS):
        size = starts[bucket]
        starts[bucket] = begin
        begin += size
    for i in range(n):
        bucket = (keys[i] >> bits) & mask
        at = starts[bucket]
        starts[bucket] = at + 1
        next_keys[at] = keys[i]
        next_order[at] = order[i]
    return True


@njit(nogil=True, cache=True)
def _insert(keys: U64, order: Ids) -> bool:
    """Sorts nearly sorted keys. Returns False if that takes more than a few moves per row."""
    moves_left = _MOVES * len(keys)
    for i in range(1, len(keys)):
        key, row, at = keys[i], order[i], i
        while at > 0 and keys[at - 1] > key:
            keys[at], order[at] = keys[at - 1], order[at - 1]
            at -= 1
        keys[at], order[at] = key, row
        moves_left -= i - at
        if moves_left < 0:
            return False
    return True


@njit([IDS(HASHES_IN)], nogil=True, cache=True)
def by_hash(hashes: U64) -> Ids:
    """The stable permutation that sorts unsigned hashes.

    Hashes are uniform within their span, so after sorting by two digits of the span little is left. For
    other hashes all digits are sorted, the lowest first.
    """
    n = len(hashes)
    keys, next_keys = hashes.copy(), np.empty(n, np.uint64)
    order, next_order = np.arange(n), np.empty(n, np.int64)
    starts = np.empty(_BUCKETS, np.int64)
    least = hashes.min() if n else np.uint64(0)
    span, top = (hashes.max() if n else np.uint64(0)) - least, 0
    while top < 64 and span >> np.uint64(top):
        top += 1
    for i in range(n):
        keys[i] -= least
    for shift in (max(0, top - 2 * _DIGIT), max(0, top - _DIGIT)):
        if _pass(keys, order, next_keys, next_order, shift, starts):
            keys, next_keys = next_keys, keys
            order, next_order = next_order, order
    if _insert(keys, order):
        return order
    for shift in range(0, 64, _DIGIT):
        if _pass(keys, order, next_keys, next_order, shift, starts):
            keys, next_keys = next_keys, keys
            order, next_order = next_order, order
    return order


@njit([I64(WORDS_IN, I64, IDS_IN)], nogil=True, cache=True)
def held_bytes(rows: U64, count: int, variable: Ids) -> int:
    """Heap bytes that the variable words of the first `count` rows point at."""
    size = 0
    if len(variable) > 0:
        for row in range(count):
            for v in range(len(variable)):
                size += heap_bytes.length(rows[row, variable[v]])
    return size


@njit([(WORDS_IN, IDS_IN, WORDS)], nogil=True, cache=True)
def take(rows: U64, ids: Ids, out: U64) -> None:
    """Copies rows; their variable words point into the old heap until `repack`."""
    for i in range(len(ids)):
        row = ids[i]
        for word in range(out.shape[1]):
            out[i, word] = rows[row, word]


@njit([(WORDS, HASHES, STAMPS, IDS_IN)], nogil=True, cache=True)
def squeeze(rows: U64, hashes: U64, stamps: npt.NDArray[np.uint32], ids: Ids) -> None:
    """Moves the rows of ascending `ids` to the front, in place."""
    for i in range(len(ids)):
        row = ids[i]
        if row == i:
            continue
        for word in range(rows.shape[1]):
            rows[i, word] = rows[row, word]
        hashes[i] = hashes[row]
        stamps[i, 0], stamps[i, 1] = stamps[row, 0], stamps[row, 1]


@njit([(WORDS, I64, IDS_IN, HEAP_IN, HEAP)], nogil=True, cache=True)
def repack(rows: U64, count: int, variable: Ids, heap: U8, out: U8) -> None:
    """Copies the values of the first `count` rows into a heap without garbage, and repoints the rows."""
    used = 0
    for row in range(count):
        for v in range(len(variable)):
            word = variable[v]
            size = heap_bytes.length(rows[row, word])
            heap_bytes.copy(heap, heap_bytes.offset(rows[row, word]), out, used, size)
            rows[row, word] = heap_bytes.pointer(used, size)
            used += size
