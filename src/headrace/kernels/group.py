"""Grouping kept rows that are ordered by hash (rows of one key and one window start are one group), and
sorting the rows of each group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.lookup import Mask, same_key
from headrace.kernels.order import by_hash
from headrace.kernels.pack import I64
from headrace.kernels.signature import HASHES_IN, HEAP_IN, IDS, IDS_IN, VALID_IN, WORDS_IN
from headrace.kernels.signature import I64 as INT
from headrace.store.run import U8, U64

_FEW, _MANY = 32, 4096  # rows of a group: sorted by insertion up to a few, by digits from many on


@njit([types.Tuple((IDS, IDS))(HASHES_IN, WORDS_IN, HEAP_IN, IDS_IN, VALID_IN)], nogil=True, cache=True)
def group_rows(hashes: U64, words: U64, heap: U8, starts: I64, variable_key: Mask) -> tuple[I64, I64]:
    """The group of each row, and the first row of each group; groups are numbered as they appear.

    `starts` has the window start of each row, or none where all rows are of one window. Equal hashes of
    different keys stay apart, because the words of the keys decide, and the bytes of variable words.
    """
    n, width = len(hashes), len(variable_key)
    of_row, firsts = np.empty(n, np.int64), np.empty(n, np.int64)
    groups: Any = 0
    begin: Any = 0  # the first group of the current hash
    for i in range(n):
        if i > 0 and hashes[i] != hashes[i - 1]:
            begin = groups
        found: Any = -1
        for back in range(groups - begin):  # the latest group first: rows of one group mostly lie together
            group = groups - 1 - back
            row = firsts[group]
            if len(starts) > 0 and starts[row] != starts[i]:
                continue
            if same_key(words[row], heap, words[i][:width], heap, variable_key):
                found = group
                break
        if found < 0:
            found = groups
            firsts[groups] = i
            groups += 1
        of_row[i] = found
    return of_row, firsts[:groups].copy()


@njit(nogil=True, cache=True)
def _is_before(keys: U64, one: int, other: int) -> bool:
    """Whether a row comes before another; the last key is first in importance."""
    for key in range(keys.shape[0] - 1, -1, -1):
        if keys[key, one] != keys[key, other]:
            return bool(keys[key, one] < keys[key, other])
    return False


@njit([types.Tuple((IDS, IDS))(IDS_IN, INT, IDS_IN, WORDS_IN)], nogil=True, cache=True)
def sort_rows(of_row: I64, groups: int, rows: I64, keys: U64) -> tuple[I64, I64]:
    """Some rows by group, and where each group begins; within a group by keys (`[key, row]`), stable."""
    starts = np.zeros(groups + 1, np.int64)
    for i in range(len(rows)):
        starts[of_row[rows[i]] + 1] += 1
    for group in range(groups):
        starts[group + 1] += starts[group]
    found, free = np.empty(len(rows), np.int64), starts.copy()
    for i in range(len(rows)):
        group = of_row[rows[i]]
        found[free[group]] = rows[i]
        free[group] += 1
    for group in range(groups):
        start, end = starts[group], starts[group + 1]
        if end - start > _FEW:
            for key in range(keys.shape[0]):
                part = found[start:end].copy()
                values = keys[key][part]
                few = end - start < _MANY
                order = np.argsort(values, kind="mergesort") if few else by_hash(values)
                found[start:end] = part[order]
            continue
        for i in range(start + 1, end):
            row, at = found[i], i
            while at > start and _is_before(keys, row, found[at - 1]):
                found[at] = found[at - 1]
                at -= 1
            found[at] = row
    return found, starts
