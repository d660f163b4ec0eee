"""Merging ordered runs that lie one after another, newest first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.lookup import Mask, same_key
from headrace.kernels.pack import I64, move_heap
from headrace.kernels.signature import HASHES_IN, HEAP, HEAP_IN, IDS, IDS_IN, VALID_IN, WORDS, WORDS_IN
from headrace.kernels.signature import I64 as INT
from headrace.store.layout import LENGTH_BITS, LENGTH_MAX
from headrace.store.run import U8, U64

_BITS = np.uint64(LENGTH_BITS)
_LENGTH = np.uint64(LENGTH_MAX)


@njit([(WORDS, INT, INT, IDS_IN, INT)], nogil=True, cache=True)
def shift_heap(words: U64, start: int, end: int, variable: I64, by: int) -> None:
    """Make rows `[start, end)` point `by` bytes further into their heap."""
    shift = np.uint64(by) << _BITS
    for i in range(start, end):
        for v in variable:
            if words[i, v]:
                words[i, v] += shift


@njit([types.Tuple((WORDS, HEAP))(WORDS_IN, HEAP_IN, INT, INT, IDS_IN)], nogil=True, cache=True)
def take_rows(words: U64, heap: U8, start: int, end: int, variable: I64) -> tuple[U64, U8]:
    """Rows `[start, end)` over a heap that holds only what they point at."""
    taken = words[start:end].copy()
    size: Any = 0
    for i in range(start, end):
        for v in variable:
            size += np.int64(words[i, v] & _LENGTH)
    held = np.empty(size, np.uint8)
    move_heap(taken, variable, heap, held)
    return taken, held


@njit(nogil=True, cache=True)
def _is_new(row: int, order: I64, group: int, used: int, words: U64, heap: U8, variable_key: Mask) -> bool:
    """Whether no row taken since `group` (all of one hash) has the key of `row`."""
    width = variable_key.size
    for j in range(group, used):
        if same_key(words[order[j]], heap, words[row][:width], heap, variable_key):
            return False
    return True


@njit(nogil=True, cache=True)
def _drop_ended(at: I64, end: I64, live: int) -> int:
    """Move the runs that still have rows to the front, in their order; how many they are."""
    kept = 0
    for r in range(live):
        if at[r] < end[r]:
            at[kept], end[kept] = at[r], end[r]
            kept += 1
    return kept


@njit([IDS(HASHES_IN, WORDS_IN, HEAP_IN, IDS_IN, VALID_IN)], nogil=True, cache=True)
def merge_order(hashes: U64, words: U64, heap: U8, bounds: I64, variable_key: Mask) -> I64:
    """The rows to keep, ordered by hash: of equal keys the one in the first run that has it.

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
