"""Folding whole state rows into state rows of the same layout: `accumulate` for rows instead of values.

Combining the rows of two halves gives the row of the whole. The tie rules are those of `accumulate`: of
equal extremes the present one stays. A plan has one line per accumulator, with the columns below;
`store/tables/fold.py` makes it. A row of zeros is neutral, so a fresh row becomes equal to the first row
combined into it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core import bytes as heap_bytes
from headrace.kernels.core import wide
from headrace.kernels.core.bytes import GARBAGE, USED
from headrace.kernels.core.signature import HEAP, HEAP_IN, I64, IDS, IDS_IN, WORDS, WORDS_IN, Scalar
from headrace.kernels.tables.accumulate import (
    DECIMAL,
    DOUBLE,
    ERROR,
    FLOAT,
    SIGNED,
    VARIABLE,
    WRAP,
    bits,
    compare_floats,
    number,
)
from headrace.row.arrays import U8, U64, Ids

# The operation of a plan's line.
COUNT, SUM_INT, SUM_DOUBLE, SUM_DECIMAL, MOMENTS, EXTREME, BY_TIME = 0, 1, 2, 3, 4, 5, 6
# Columns of a plan. HOW is the overflow rule of a sum, or 1 where the largest or the latest wins.
OP, WORD, FLAG, HAS, SECOND, CODE, HOW, LIMIT_LOW, LIMIT_HIGH = 0, 1, 2, 3, 4, 5, 6, 7, 8
PLAN_COLUMNS = 9

_NONE = np.uint64(0)


@njit(nogil=True, cache=True)
def compare(
    code: int, words: U64, i: int, heap: U8, rows: U64, row: int, word: int, row_heap: U8
) -> Scalar:
    """Compares the value at `word` of row i of `words` with that of a table row: -1, 0 or 1."""
    a, b = words[i, word], rows[row, word]
    if code == SIGNED:
        return -1 if np.int64(a) < np.int64(b) else (1 if np.int64(a) > np.int64(b) else 0)
    if code == DOUBLE:
        return compare_floats(number(a), number(b))
    if code == FLOAT:
        return compare_floats(np.uint32(a).view(np.float32), np.uint32(b).view(np.float32))
    if code == DECIMAL:
        return wide.compare(a, words[i, word + 1], b, rows[row, word + 1])
    return heap_bytes.compare(a, heap, b, row_heap)


@njit(nogil=True, cache=True)
def put(
    code: int, words: U64, i: int, heap: U8, rows: U64, row: int, word: int, row_heap: U8, ends: Ids
) -> None:
    """Overwrites a row's value; `ends` are the heap's counters. A null's words are zero."""
    if code != VARIABLE:
        rows[row, word] = words[i, word]
        if code == DECIMAL:
            rows[row, word + 1] = words[i, word + 1]
        return
    old, value = rows[row, word], words[i, word]
    at, size, old_size = heap_bytes.offset(old), heap_bytes.length(value), heap_bytes.length(old)
    ends[GARBAGE] += old_size
    if size <= old_size:
        ends[GARBAGE] -= size  # only this row points to these bytes, so they can be reused
    else:
        at = ends[USED]
        ends[USED] += size
    heap_bytes.copy(heap, heap_bytes.offset(value), row_heap, at, size)
    rows[row, word] = heap_bytes.pointer(at, size)


@njit(nogil=True, cache=True)
def count(rows: U64, ids: Ids, words: U64, word: int) -> None:
    for i in range(len(ids)):
        rows[ids[i], word] += words[i, word]


@njit(nogil=True, cache=True)
def sum_double(rows: U64, ids: Ids, words: U64, word: int, flag: int, has: np.uint64) -> None:
    for i in range(len(ids)):
        row = ids[i]
        rows[row, word] = bits(number(rows[row, word]) + number(words[i, word]))
        rows[row, flag] |= words[i, flag] & has


@njit(nogil=True, cache=True)
def sum_int(
    rows: U64, ids: Ids, words: U64, word: int, flag: int, has: np.uint64, lost: np.uint64, overflow: int
) -> bool:
    for i in range(len(ids)):
        row, flags = ids[i], words[i, flag]
        if flags & has == _NONE:
            continue
        a, b = rows[row, word], words[i, word]
        total = a + b
        rows[row, flag] |= flags & (has | lost)
        if overflow != WRAP and np.int64((a ^ total) & (b ^ total)) < 0:
            if overflow == ERROR:
                return False
            rows[row, flag] |= lost
        rows[row, word] = total
    return True


@njit(nogil=True, cache=True)
def sum_decimal(
    rows: U64,
    ids: Ids,
    words: U64,
    word: int,
    flag: int,
    has: np.uint64,
    lost: np.uint64,
    overflow: int,
    limit_low: np.uint64,
    limit_high: np.uint64,
) -> bool:
    for i in range(len(ids)):
        row, flags = ids[i], words[i, flag]
        if flags & has == _NONE or rows[row, flag] & lost != _NONE:
            continue
        a_high, b_high = rows[row, word + 1], words[i, word + 1]
        low, high = wide.add(rows[row, word], a_high, words[i, word], b_high)
        rows[row, flag] |= flags & (has | lost)
        if wide.overflowed(a_high, b_high, high) or wide.reaches(low, high, limit_low, limit_high):
            if overflow == ERROR:
                return False
            rows[row, flag] |= lost
        if rows[row, flag] & lost != _NONE:
            low, high = _NONE, _NONE
        rows[row, word], rows[row, word + 1] = low, high
    return True


@njit(nogil=True, cache=True)
def moments(rows: U64, ids: Ids, words: U64, word: int) -> None:
    """Chan's formula, in Spark's own steps; into an empty row it copies."""
    for i in range(len(ids)):
        row = ids[i]
        n, more = number(rows[row, word]), number(words[i, word])
        if more == 0.0:
            continue
        if n == 0.0:
            for part in range(word, word + 3):
                rows[row, part] = words[i, part]
            continue
        mean, squares = number(rows[row, word + 1]), number(rows[row, word + 2])
        delta = number(words[i, word + 1]) - mean
        step = delta / (n + more)
        rows[row, word] = bits(n + more)
        rows[row, word + 1] = bits(mean + step * more)
        rows[row, word + 2] = bits(squares + number(words[i, word + 2]) + delta * step * n * more)


@njit(nogil=True, cache=True)
def extreme(
    rows: U64,
    row_heap: U8,
    ends: Ids,
    ids: Ids,
    words: U64,
    heap: U8,
    word: int,
    flag: int,
    has: np.uint64,
    code: int,
    largest: bool,
) -> None:
    for i in range(len(ids)):
        row = ids[i]
        if words[i, flag] & has == _NONE:
            continue
        if rows[row, flag] & has != _NONE:
            order = compare(code, words, i, heap, rows, row, word, row_heap)
            if order == 0 or (order > 0) != largest:
                continue
        rows[row, flag] |= has
        put(code, words, i, heap, rows, row, word, row_heap, ends)


@njit(nogil=True, cache=True)
def by_time(
    rows: U64,
    row_heap: U8,
    ends: Ids,
    ids: Ids,
    words: U64,
    heap: U8,
    word: int,
    flag: int,
    has: np.uint64,
    null: np.uint64,
    code: int,
    latest: bool,
) -> None:
    for i in range(len(ids)):
        row = ids[i]
        if words[i, flag] & has == _NONE:
            continue
        is_null = words[i, flag] & null != _NONE
        if rows[row, flag] & has != _NONE:
            time, stored_time = np.int64(words[i, word]), np.int64(rows[row, word])
            if time != stored_time:
                better = (time > stored_time) == latest
            elif rows[row, flag] & null != _NONE:
                better = latest and not is_null
            elif is_null:
                better = not latest
            else:
                order = compare(code, words, i, heap, rows, row, word + 1, row_heap)
                better = order != 0 and (order > 0) == latest
            if not better:
                continue
        rows[row, flag] = (rows[row, flag] & ~null) | has | (null if is_null else _NONE)
        rows[row, word] = words[i, word]
        put(code, words, i, heap, rows, row, word + 1, row_heap, ends)


@njit([I64(WORDS, HEAP, IDS, IDS_IN, WORDS_IN, HEAP_IN, WORDS_IN)], nogil=True, cache=True)
def combine(rows: U64, row_heap: U8, ends: Ids, ids: Ids, words: U64, heap: U8, plan: U64) -> int:
    """Folds row i of `words` into row `ids[i]`, in order; returns the accumulator that overflowed, or -1.

    The heap must have room for every value of `words`.
    """
    for at in range(len(plan)):
        op, word, flag = np.int64(plan[at, OP]), np.int64(plan[at, WORD]), np.int64(plan[at, FLAG])
        has, second = plan[at, HAS], plan[at, SECOND]
        code, how = np.int64(plan[at, CODE]), np.int64(plan[at, HOW])
        fits = True
        if op == COUNT:
            count(rows, ids, words, word)
        elif op == SUM_DOUBLE:
            sum_double(rows, ids, words, word, flag, has)
        elif op == SUM_INT:
            fits = sum_int(rows, ids, words, word, flag, has, second, how)
        elif op == SUM_DECIMAL:
            limit = plan[at, LIMIT_LOW], plan[at, LIMIT_HIGH]
            fits = sum_decimal(rows, ids, words, word, flag, has, second, how, limit[0], limit[1])
        elif op == MOMENTS:
            moments(rows, ids, words, word)
        elif op == EXTREME:
            extreme(rows, row_heap, ends, ids, words, heap, word, flag, has, code, how != 0)
        else:
            by_time(rows, row_heap, ends, ids, words, heap, word, flag, has, second, code, how != 0)
        if not fits:
            return at
    return -1
