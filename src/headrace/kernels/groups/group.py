"""Grouping of kept rows that are ordered by hash, and sorting within groups.

A group is the rows of one key and one window start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.core.mix import mixed_key
from headrace.kernels.core.order import by_hash
from headrace.kernels.core.signature import HASHES_IN, HEAP_IN, IDS, IDS_IN, VALID_IN, WORDS_IN
from headrace.kernels.core.signature import I64 as INT
from headrace.kernels.segments.lookup import same_key
from headrace.row.arrays import I64, U8, U64, Flags

_CROWD = 16  # groups of one hash that are compared one after another
_FEW, _MANY = 32, 4096  # rows of a group: sorted by insertion up to `_FEW`, by digits from `_MANY` on


@njit(nogil=True, cache=True)
def _group_crowd(
    words: U64, heap: U8, starts: I64, variable_key: Flags, hashed: np.uint64, first: int, end: int,
    begin: int, groups: int, of_row: I64, firsts: I64,
) -> Any:  # fmt: skip
    """Groups the rows from `first` to `end`, all of one hash, through a second hash of key and start.

    The groups from `begin` on are those of the rows before. Returns the new number of groups.
    """
    width, size = len(variable_key), 2
    while size < 2 * (groups - begin + end - first):
        size *= 2
    mask, slots = np.uint64(size - 1), np.full(size, -1, np.int64)
    for turn in range(begin - groups, end - first):  # first the groups that exist, then the rows
        group: Any = groups + turn
        i: Any = firsts[group] if turn < 0 else first + turn
        seed = hashed ^ np.uint64(starts[i]) if len(starts) > 0 else hashed
        at = mixed_key(words, i, heap, variable_key, seed) & mask
        while slots[at] >= 0:
            row = firsts[slots[at]]
            if (len(starts) == 0 or starts[row] == starts[i]) and same_key(
                words[row], heap, words[i][:width], heap, variable_key
            ):
                break
            at = (at + np.uint64(1)) & mask
        if turn < 0:
            slots[at] = group
            continue
        if slots[at] < 0:
            slots[at] = groups
            firsts[groups] = i
            groups += 1
        of_row[i] = slots[at]
    return groups


@njit([types.Tuple((IDS, IDS))(HASHES_IN, WORDS_IN, HEAP_IN, IDS_IN, VALID_IN)], nogil=True, cache=True)
def group_rows(hashes: U64, words: U64, heap: U8, starts: I64, variable_key: Flags) -> tuple[I64, I64]:
    """The group of each row, and the first row of each group; groups are numbered in order of appearance.

    `starts` has the window start of each row, or is empty where all rows are of one window. Different keys
    of equal hash stay separate, because words are compared, and bytes of variable words.
    """
    n, width = len(hashes), len(variable_key)
    of_row, firsts = np.empty(n, np.int64), np.empty(n, np.int64)
    groups: Any = 0
    begin: Any = 0  # the first group of the current hash
    i: Any = -1
    while i + 1 < n:
        i += 1
        if i > 0 and hashes[i] != hashes[i - 1]:
            begin = groups
        if groups - begin > _CROWD:
            end = i
            while end < n and hashes[end] == hashes[i]:
                end += 1
            groups = _group_crowd(
                words, heap, starts, variable_key, hashes[i], i, end, begin, groups, of_row, firsts
            )
            i = end - 1
            continue
        current: Any = -1
        # the latest group first, because rows of one group are mostly adjacent
        for back in range(groups - begin):
            group = groups - 1 - back
            row = firsts[group]
            if len(starts) > 0 and starts[row] != starts[i]:
                continue
            if same_key(words[row], heap, words[i][:width], heap, variable_key):
                current = group
                break
        if current < 0:
            current = groups
            firsts[groups] = i
            groups += 1
        of_row[i] = current
    return of_row, firsts[:groups].copy()


@njit(nogil=True, cache=True)
def _is_before(keys: U64, one: int, other: int) -> bool:
    """Whether a row precedes another; the last key is compared first."""
    for key in range(keys.shape[0] - 1, -1, -1):
        if keys[key, one] != keys[key, other]:
            return bool(keys[key, one] < keys[key, other])
    return False


@njit([types.Tuple((IDS, IDS))(IDS_IN, INT, IDS_IN, WORDS_IN)], nogil=True, cache=True)
def sort_rows(of_row: I64, groups: int, rows: I64, keys: U64) -> tuple[I64, I64]:
    """The rows sorted by group and stably by keys (`[key, row]`), and the start of each group."""
    starts = np.zeros(groups + 1, np.int64)
    for i in range(len(rows)):
        starts[of_row[rows[i]] + 1] += 1
    for group in range(groups):
        starts[group + 1] += starts[group]
    sorted_rows, free = np.empty(len(rows), np.int64), starts.copy()
    for i in range(len(rows)):
        group = of_row[rows[i]]
        sorted_rows[free[group]] = rows[i]
        free[group] += 1
    for group in range(groups):
        start, end = starts[group], starts[group + 1]
        if end - start > _FEW:
            for key in range(keys.shape[0]):
                part = sorted_rows[start:end].copy()
                values = keys[key][part]
                few = end - start < _MANY
                order = np.argsort(values, kind="mergesort") if few else by_hash(values)
                sorted_rows[start:end] = part[order]
            continue
        for i in range(start + 1, end):
            row, at = sorted_rows[i], i
            while at > start and _is_before(keys, row, sorted_rows[at - 1]):
                sorted_rows[at] = sorted_rows[at - 1]
                at -= 1
            sorted_rows[at] = row
    return sorted_rows, starts
