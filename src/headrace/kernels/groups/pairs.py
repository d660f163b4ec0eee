"""Pairs of two runs of kept rows: equal keys, and times that are near enough.

`begins` and `ends` give the rows of the partner run that have the hash of each row. Keys are compared,
because different keys may share a hash. A row whose side is
ALONE or more has no partner (see `plan/columns.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.core.signature import FLAGS, HEAP_IN, IDS, IDS_IN, VALID_IN, WORDS_IN
from headrace.kernels.core.signature import I64 as INT
from headrace.kernels.segments.lookup import same_key
from headrace.row.arrays import I64, U8, U64, Flags

_ALONE = np.uint64(2)


@njit(nogil=True, cache=True)
def _match(
    words: U64,
    heap: U8,
    row: int,
    other_words: U64,
    other_heap: U8,
    other: int,
    variable_key: Flags,
    rule: I64,
) -> bool:
    """Whether two rows match.

    `rule` has the words of time and side, then the bounds if there are any, then the word of the time
    until which a right row matches, and whether the right row is `other`.
    """
    side = rule[1]
    if words[row, side] >= _ALONE or other_words[other, side] >= _ALONE:
        return False
    if rule.size > 2:
        apart = np.int64(other_words[other, rule[0]]) - np.int64(words[row, rule[0]])
        if apart < rule[2] or apart > rule[3]:
            return False
    if rule.size > 4:
        is_other = rule[5] == 1
        until = other_words[other, rule[4]] if is_other else words[row, rule[4]]
        point = words[row, rule[0]] if is_other else other_words[other, rule[0]]
        if np.int64(point) > np.int64(until):
            return False
    width = variable_key.size
    equal: bool = same_key(other_words[other], other_heap, words[row][:width], heap, variable_key)
    return equal


@njit(
    [
        INT(IDS_IN, IDS_IN, WORDS_IN, HEAP_IN, WORDS_IN, HEAP_IN, VALID_IN, IDS_IN, IDS, IDS, IDS),
    ],
    nogil=True,
    cache=True,
)
def next_pairs(
    begins: I64,
    ends: I64,
    words: U64,
    heap: U8,
    other_words: U64,
    other_heap: U8,
    variable_key: Flags,
    rule: I64,
    cursor: I64,
    rows: I64,
    others: I64,
) -> int:
    """Writes pairs from `cursor` on, as many as fit, moves the cursor, and returns their number.

    The cursor is a row and an offset among the rows of its hash; it begins at zeros.
    """
    row: Any = cursor[0]
    at: Any = cursor[1]
    count: Any = 0
    while row < begins.size:
        if begins[row] + at >= ends[row]:
            row += 1
            at = 0
            continue
        if count == rows.size:
            break
        other = begins[row] + at
        if _match(words, heap, row, other_words, other_heap, other, variable_key, rule):
            rows[count], others[count] = row, other
            count += 1
        at += 1
    cursor[0], cursor[1] = row, at
    return int(count)


@njit(
    [types.void(IDS_IN, IDS_IN, WORDS_IN, HEAP_IN, WORDS_IN, HEAP_IN, VALID_IN, IDS_IN, FLAGS)],
    nogil=True,
    cache=True,
)
def mark_matched(
    begins: I64,
    ends: I64,
    words: U64,
    heap: U8,
    other_words: U64,
    other_heap: U8,
    variable_key: Flags,
    rule: I64,
    matched: Flags,
) -> None:
    """Marks the rows that have any partner; marked rows are not compared again."""
    for row in range(begins.size):
        if matched[row]:
            continue
        for other in range(begins[row], ends[row]):
            if _match(words, heap, row, other_words, other_heap, other, variable_key, rule):
                matched[row] = True
                break
