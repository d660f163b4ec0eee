"""Ordering by hash, and moving rows together with their heap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from headrace.kernels import bytes as heap_bytes
from headrace.kernels.signature import (
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
from headrace.store.run import U8, U64

Ids = npt.NDArray[np.int64]

_DIGIT = 11
_BUCKETS = 1 << _DIGIT


@njit([IDS(HASHES_IN)], nogil=True, cache=True)
def by_hash(hashes: U64) -> Ids:
    """The stable permutation that sorts unsigned hashes: radix, lowest digit first."""
    n = len(hashes)
    keys, next_keys = hashes.copy(), np.empty(n, np.uint64)
    order, next_order = np.arange(n), np.empty(n, np.int64)
    starts = np.empty(_BUCKETS, np.int64)
    mask = np.uint64(_BUCKETS - 1)
    for shift in range(0, 64, _DIGIT):
        bits = np.uint64(shift)
        starts[:] = 0
        for i in range(n):
            starts[(keys[i] >> bits) & mask] += 1
        if n == 0 or starts[(keys[0] >> bits) & mask] == n:
            continue  # all rows share this digit
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
        keys, next_keys = next_keys, keys
        order, next_order = next_order, order
    return order


@njit([I64(WORDS_IN, IDS_IN, IDS_IN)], nogil=True, cache=True)
def held_bytes(rows: U64, ids: Ids, variable: Ids) -> int:
    """Heap bytes that the variable words of these rows point at."""
    held = 0
    for v in range(len(variable)):
        for i in range(len(ids)):
            held += heap_bytes.length(rows[ids[i], variable[v]])
    return held


@njit([(WORDS_IN, IDS_IN, IDS_IN, IDS)], nogil=True, cache=True)
def row_bytes(rows: U64, ids: Ids, variable: Ids, out: Ids) -> None:
    """Heap bytes of each of these rows."""
    for i in range(len(ids)):
        held = 0
        for v in range(len(variable)):
            held += heap_bytes.length(rows[ids[i], variable[v]])
        out[i] = held


@njit([(WORDS_IN, HEAP_IN, IDS_IN, IDS_IN, WORDS, HEAP)], nogil=True, cache=True)
def gather(rows: U64, heap: U8, ids: Ids, variable: Ids, out: U64, out_heap: U8) -> None:
    """Copy rows and their heap values into a compact run."""
    used = 0
    for i in range(len(ids)):
        row = ids[i]
        for word in range(rows.shape[1]):
            out[i, word] = rows[row, word]
        for v in range(len(variable)):
            word = variable[v]
            size = heap_bytes.length(rows[row, word])
            heap_bytes.copy(heap, heap_bytes.offset(rows[row, word]), out_heap, used, size)
            out[i, word] = heap_bytes.pointer(used, size)
            used += size


@njit([(WORDS, HASHES, STAMPS, IDS_IN)], nogil=True, cache=True)
def squeeze(rows: U64, hashes: U64, stamps: npt.NDArray[np.uint32], ids: Ids) -> None:
    """Move the rows of ascending `ids` to the front, in place."""
    for i in range(len(ids)):
        row = ids[i]
        if row == i:
            continue
        for word in range(rows.shape[1]):
            rows[i, word] = rows[row, word]
        hashes[i] = hashes[row]
        stamps[i] = stamps[row]


@njit([(WORDS, I64, IDS_IN, HEAP_IN, HEAP)], nogil=True, cache=True)
def repack(rows: U64, count: int, variable: Ids, heap: U8, out: U8) -> None:
    """Copy what the first `count` rows hold into a heap without garbage and point them there."""
    used = 0
    for row in range(count):
        for v in range(len(variable)):
            word = variable[v]
            size = heap_bytes.length(rows[row, word])
            heap_bytes.copy(heap, heap_bytes.offset(rows[row, word]), out, used, size)
            rows[row, word] = heap_bytes.pointer(used, size)
            used += size
