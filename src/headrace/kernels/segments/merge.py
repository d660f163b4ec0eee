"""Merging ordered runs that are concatenated, newest first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.core.pack import move_heap
from headrace.kernels.core.signature import HASHES_IN, HEAP, HEAP_IN, IDS, IDS_IN, VALID_IN, WORDS, WORDS_IN
from headrace.kernels.core.signature import I64 as INT
from headrace.kernels.segments.lookup import same_key
from headrace.row.arrays import I64, U8, U64, Flags
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX

_BITS = np.uint64(LENGTH_BITS)
_LENGTH = np.uint64(LENGTH_MAX)


@njit([(WORDS, INT, INT, IDS_IN, INT)], nogil=True, cache=True)
def shift_heap(words: U64, start: int, end: int, variable: I64, by: int) -> None:
    """Makes rows `[start, end)` point `by` bytes further into their heap."""
    shift = np.uint64(by) << _BITS
    for i in range(start, end):
        for v in variable:
            if words[i, v]:
                words[i, v] += shift


@njit([types.Tuple((WORDS, HEAP))(WORDS_IN, HEAP_IN, INT, INT, IDS_IN)], nogil=True, cache=True)
def take_rows(words: U64, heap: U8, start: int, end: int, variable: I64) -> tuple[U64, U8]:
    """Rows `[start, end)` with a heap of their own values only."""
    rows = words[start:end].copy()
    size: Any = 0
    for i in range(start, end):
        for v in variable:
            size += np.int64(words[i, v] & _LENGTH)
    own_heap = np.empty(size, np.uint8)
    move_heap(rows, variable, heap, own_heap)
    return rows, own_heap


@njit(nogil=True, cache=True)
def _is_new(row: int, order: I64, group: int, used: int, words: U64, heap: U8, variable_key: Flags) -> bool:
    """Whether no chosen row since `group` (all of one hash) has the key of `row`."""
    width = variable_key.size
    for j in range(group, used):
        if same_key(words[order[j]], heap, words[row][:width], heap, variable_key):
            return False
    return True


@njit(nogil=True, cache=True)
def _drop_ended(at: I64, end: I64, live: int) -> int:
    """Moves the runs that still have rows to the front, in their order; returns their number."""
    remaining = 0
    for r in range(live):
        if at[r] < end[r]:
            at[remaining], end[remaining] = at[r], end[r]
            remaining += 1
    return remaining


@njit([IDS(HASHES_IN, WORDS_IN, HEAP_IN, IDS_IN, VALID_IN)], nogil=True, cache=True)
def merge_order(hashes: U64, words: U64, heap: U8, bounds: I64, variable_key: Flags) -> I64:
    """The rows to keep, ordered by hash: for equal keys the row of the first run that has the key.

    Run r is the rows `[bounds[r], bounds[r + 1])`; `variable_key` has one flag per key word.
    """
    at, end, head = bounds[:-1].copy(), bounds[1:].copy(), np.empty(bounds.size - 1, np.uint64)
    live = _drop_ended(at, end, at.size)
    for r in range(live):
        head[r] = hashes[at[r]]
    order = np.empty(hashes.size, np.int64)
    used, group = 0, 0
    last: Any = np.uint64(0)
    while live:
        best, least = 0, head[0]
        for r in range(1, live):  # few runs: a scan of their heads beats a heap
            if head[r] < least:
                best, least = r, head[r]
        row = at[best]
        at[best] += 1
        if at[best] < end[best]:
            head[best] = hashes[at[best]]
        else:
            live = _drop_ended(at, end, live)
            for r in range(best, live):
                head[r] = hashes[at[r]]
        if least != last:
            group, last = used, least
        if _is_new(row, order, group, used, words, heap, variable_key):
            order[used] = row
            used += 1
    return order[:used].copy()
