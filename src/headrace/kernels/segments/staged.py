"""Rows that were read ahead of their use: which hashes were read, and the rows of keys among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.core.signature import (
    FLAGS,
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
from headrace.kernels.segments.lookup import _take, same_key
from headrace.row.arrays import I64, U8, U64, Flags


@njit([IDS(HASHES_IN, HASHES_IN)], nogil=True, cache=True)
def positions(requested: U64, hashes: U64) -> I64:
    """The position of each hash in `requested`, or -1. Both are ordered; `requested` are distinct."""
    places = np.full(hashes.size, -1, np.int64)
    at = 0
    for i in range(hashes.size):
        while at < requested.size and requested[at] < hashes[i]:
            at += 1
        if at == requested.size:
            break
        if requested[at] == hashes[i]:
            places[i] = at
    return places


_TAKEN = types.Tuple((HEAP, INT))(
    HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN, IDS_IN, VALID_IN, HASHES_IN, WORDS_IN, HEAP_IN,
    FLAGS, WORDS, HEAP, INT,
)  # fmt: skip


@njit([_TAKEN], nogil=True, cache=True)
def take_rows(
    hashes: U64,
    keys: U64,
    key_heap: U8,
    variable_key: Flags,
    variable: I64,
    wanted: Flags,
    run_hashes: U64,
    run_words: U64,
    run_heap: U8,
    mask: Flags,
    words: U64,
    heap: U8,
    used: int,
) -> tuple[U8, int]:
    """Copies the rows of the requested probes from an ordered run; returns the heap and its used bytes."""
    start: Any = 0
    for i in range(hashes.size):
        while start < run_hashes.size and run_hashes[start] < hashes[i]:
            start += 1
        if not wanted[i] or mask[i]:
            continue
        at = start
        while at < run_hashes.size and run_hashes[at] == hashes[i]:
            if same_key(run_words[at], run_heap, keys[i], key_heap, variable_key):
                heap, used = _take(run_words[at], run_heap, variable, words[i], heap, used)
                mask[i] = True
                break
            at += 1
    return heap, used
