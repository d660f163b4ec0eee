"""Folding a batch into accumulators, with the semantics of Spark SQL.

Each kernel has the table's rows, the table row of each batch row (`ids`) and the accumulator's position
(`word`, its `flag` word and masks). The batch column is an array of words, as `column_of` in
`store/rows/arrow.py` returns it. An empty `valid` means that no value is null. Rows are folded in
their order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core import bytes as heap_bytes
from headrace.kernels.core import wide
from headrace.kernels.core.bytes import GARBAGE, USED
from headrace.kernels.core.signature import (
    FLAG,
    HEAP,
    HEAP_IN,
    I64,
    IDS,
    IDS_IN,
    VALID_IN,
    WORDS,
    WORDS_IN,
    Scalar,
)
from headrace.kernels.core.signature import U64 as MASK
from headrace.row.arrays import U8, U64, Flags, Ids

# How the words of a value are compared.
SIGNED, DOUBLE, FLOAT, DECIMAL, VARIABLE = 0, 1, 2, 3, 4
# The result of a sum that exceeds its type.
WRAP, ERROR, NULL = 0, 1, 2


@njit(nogil=True, cache=True)
def number(word: np.uint64) -> np.float64:
    return np.uint64(word).view(np.float64)


@njit(nogil=True, cache=True)
def bits(value: np.float64) -> np.uint64:
    return np.float64(value).view(np.uint64)


@njit(nogil=True, cache=True)
def compare_floats(a: float, b: float) -> int:
    """Spark's order: NaN is the greatest and equals itself, and both zeros are equal."""
    if np.isnan(a):
        return 0 if np.isnan(b) else 1
    if np.isnan(b) or a < b:
        return -1
    return 1 if a > b else 0


@njit(nogil=True, cache=True)
def compare(
    code: int, words: U64, i: int, heap: U8, rows: U64, row: int, word: int, row_heap: U8
) -> Scalar:
    """Compares a batch value with the value at `word` of a row: -1, 0 or 1."""
    a, b = words[i, 0], rows[row, word]
    if code == SIGNED:
        return -1 if np.int64(a) < np.int64(b) else (1 if np.int64(a) > np.int64(b) else 0)
    if code == DOUBLE:
        return compare_floats(number(a), number(b))
    if code == FLOAT:
        return compare_floats(np.uint32(a).view(np.float32), np.uint32(b).view(np.float32))
    if code == DECIMAL:
        return wide.compare(a, words[i, 1], b, rows[row, word + 1])
    return heap_bytes.compare(a, heap, b, row_heap)


@njit(nogil=True, cache=True)
def put(
    code: int, words: U64, i: int, heap: U8, rows: U64, row: int, word: int, row_heap: U8, ends: Ids
) -> None:
    """Overwrites the value at `word` of a row with a batch value; `ends` are the heap's counters."""
    if code != VARIABLE:
        for part in range(words.shape[1]):
            rows[row, word + part] = words[i, part]
        return
    old, size = rows[row, word], heap_bytes.length(words[i, 0])
    at, old_size = heap_bytes.offset(old), heap_bytes.length(old)
    ends[GARBAGE] += old_size
    if size <= old_size:
        ends[GARBAGE] -= size  # only this row points to these bytes, so they can be reused
    else:
        at = ends[USED]
        ends[USED] += size
    heap_bytes.copy(heap, heap_bytes.offset(words[i, 0]), row_heap, at, size)
    rows[row, word] = heap_bytes.pointer(at, size)


@njit(nogil=True, cache=True)
def drop(code: int, words: U64, rows: U64, row: int, word: int, ends: Ids) -> None:
    """Writes a null: its words are zero, and the bytes of a variable word become garbage."""
    if code == VARIABLE:
        ends[GARBAGE] += heap_bytes.length(rows[row, word])
    for part in range(words.shape[1]):
        rows[row, word + part] = np.uint64(0)


@njit([(WORDS, IDS_IN, I64, VALID_IN)], nogil=True, cache=True)
def count(rows: U64, ids: Ids, word: int, valid: Flags) -> None:
    """Counts rows, or rows with a value that is not null."""
    one = np.uint64(1)
    if len(valid) == 0:
        for i in range(len(ids)):
            rows[ids[i], word] += one
    else:
        for i in range(len(ids)):
            if valid[i]:
                rows[ids[i], word] += one


@njit([(WORDS, IDS_IN, I64, WORDS_IN)], nogil=True, cache=True)
def count_many(rows: U64, ids: Ids, word: int, words: U64) -> None:
    """Adds each value to a count of rows."""
    for i in range(len(ids)):
        rows[ids[i], word] += words[i, 0]


@njit([FLAG(WORDS, IDS_IN, I64, I64, MASK, MASK, I64, WORDS_IN, VALID_IN)], nogil=True, cache=True)
def sum_int(
    rows: U64,
    ids: Ids,
    word: int,
    flag: int,
    has: np.uint64,
    lost: np.uint64,
    overflow: int,
    words: U64,
    valid: Flags,
) -> bool:
    """Sum of 64-bit integers; False on overflow if `overflow` is ERROR."""
    checked = len(valid) > 0
    for i in range(len(ids)):
        if checked and not valid[i]:
            continue
        row = ids[i]
        a, b = rows[row, word], words[i, 0]
        total = a + b
        rows[row, flag] |= has
        # The sum overflows if both operands have one sign and the sum has the other.
        if overflow != WRAP and np.int64((a ^ total) & (b ^ total)) < 0:
            if overflow == ERROR:
                return False
            rows[row, flag] |= lost
        rows[row, word] = total
    return True


@njit([(WORDS, IDS_IN, I64, I64, MASK, WORDS_IN, VALID_IN)], nogil=True, cache=True)
def sum_double(rows: U64, ids: Ids, word: int, flag: int, has: np.uint64, words: U64, valid: Flags) -> None:
    checked = len(valid) > 0
    for i in range(len(ids)):
        if checked and not valid[i]:
            continue
        row = ids[i]
        rows[row, word] = bits(number(rows[row, word]) + number(words[i, 0]))
        rows[row, flag] |= has


@njit(
    [FLAG(WORDS, IDS_IN, I64, I64, MASK, MASK, I64, MASK, MASK, WORDS_IN, VALID_IN)], nogil=True, cache=True
)
def sum_decimal(
    rows: U64,
    ids: Ids,
    word: int,
    flag: int,
    has: np.uint64,
    lost: np.uint64,
    overflow: int,
    limit_low: np.uint64,
    limit_high: np.uint64,
    words: U64,
    valid: Flags,
) -> bool:
    """Sum of decimals; once its magnitude reaches the limit, it stays null."""
    checked = len(valid) > 0
    for i in range(len(ids)):
        row = ids[i]
        if (checked and not valid[i]) or rows[row, flag] & lost != np.uint64(0):
            continue
        a_low, a_high = rows[row, word], rows[row, word + 1]
        low, high = wide.add(a_low, a_high, words[i, 0], words[i, 1])
        rows[row, flag] |= has
        if wide.overflowed(a_high, words[i, 1], high) or wide.reaches(low, high, limit_low, limit_high):
            if overflow == ERROR:
                return False
            rows[row, flag] |= lost
            low, high = np.uint64(0), np.uint64(0)
        rows[row, word], rows[row, word + 1] = low, high
    return True


@njit([(WORDS, IDS_IN, I64, WORDS_IN, VALID_IN)], nogil=True, cache=True)
def moments(rows: U64, ids: Ids, word: int, words: U64, valid: Flags) -> None:
    """n, mean and the sum of squared deviations, in Spark's own steps (Welford's)."""
    checked = len(valid) > 0
    for i in range(len(ids)):
        if checked and not valid[i]:
            continue
        row = ids[i]
        n = number(rows[row, word]) + 1.0
        mean = number(rows[row, word + 1])
        squares = number(rows[row, word + 2])
        delta = number(words[i, 0]) - mean
        step = delta / n
        rows[row, word] = bits(n)
        rows[row, word + 1] = bits(mean + step)
        rows[row, word + 2] = bits(squares + delta * (delta - step))


@njit(
    [(WORDS, HEAP, IDS, IDS_IN, I64, I64, MASK, I64, FLAG, WORDS_IN, HEAP_IN, VALID_IN)],
    nogil=True,
    cache=True,
)
def extreme(
    rows: U64,
    row_heap: U8,
    ends: Ids,
    ids: Ids,
    word: int,
    flag: int,
    has: np.uint64,
    code: int,
    largest: bool,
    words: U64,
    heap: U8,
    valid: Flags,
) -> None:
    """The smallest or the largest value; the first of equal ones."""
    checked = len(valid) > 0
    for i in range(len(ids)):
        if checked and not valid[i]:
            continue
        row = ids[i]
        if rows[row, flag] & has != np.uint64(0):
            order = compare(code, words, i, heap, rows, row, word, row_heap)
            if order == 0 or (order > 0) != largest:
                continue
        rows[row, flag] |= has
        put(code, words, i, heap, rows, row, word, row_heap, ends)


@njit(
    [
        (
            *(WORDS, HEAP, IDS, IDS_IN, I64, I64, MASK, MASK, I64, FLAG),
            *(IDS_IN, VALID_IN, WORDS_IN, HEAP_IN, VALID_IN),
        )
    ],
    nogil=True,
    cache=True,
)
def by_time(
    rows: U64,
    row_heap: U8,
    ends: Ids,
    ids: Ids,
    word: int,
    flag: int,
    has: np.uint64,
    null: np.uint64,
    code: int,
    latest: bool,
    times: Ids,
    timed: Flags,
    words: U64,
    heap: U8,
    valid: Flags,
) -> None:
    """The value of the earliest or the latest time; at equal times the smallest or the largest value."""
    for i in range(len(ids)):
        if len(timed) > 0 and not timed[i]:
            continue
        row, is_null = ids[i], len(valid) > 0 and not valid[i]
        if rows[row, flag] & has != np.uint64(0):
            stored_time = np.int64(rows[row, word])
            if times[i] != stored_time:
                better = (times[i] > stored_time) == latest
            elif rows[row, flag] & null != np.uint64(0):
                better = latest and not is_null
            elif is_null:
                better = not latest
            else:
                order = compare(code, words, i, heap, rows, row, word + 1, row_heap)
                better = order != 0 and (order > 0) == latest
            if not better:
                continue
        rows[row, flag] |= has
        rows[row, word] = np.uint64(times[i])
        if is_null:
            rows[row, flag] |= null
            drop(code, words, rows, row, word + 1, ends)
        else:
            rows[row, flag] &= ~null
            put(code, words, i, heap, rows, row, word + 1, row_heap, ends)
