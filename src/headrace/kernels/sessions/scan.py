"""Scans over all sessions of a table, in one pass and without a copy."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from headrace.kernels.core.signature import I64, IDS, WORDS_IN, Scalar
from headrace.row.arrays import U64, Ids

LATEST = (1 << 63) - 1


@njit([IDS(WORDS_IN, I64, I64, I64, I64)], nogil=True, cache=True)
def ending(rows: U64, count: int, last: int, after: int, through: int) -> Ids:
    """The rows among the first `count` with a last time in `(after, through]`."""
    ids = np.empty(count, np.int64)
    n: Scalar = 0
    for row in range(count):
        when = np.int64(rows[row, last])
        ids[n] = row
        n += after < when <= through
    return ids[:n].copy()


@njit([types.Tuple((I64, I64, I64))(WORDS_IN, I64, I64, I64, I64)], nogil=True, cache=True)
def living(rows: U64, count: int, last: int, dead_through: int, word: int) -> tuple[int, int, int]:
    """The number of live rows among the first `count`; the least (or LATEST) and the sum of a word of
    these.
    """
    n: Scalar = 0
    least: Scalar = LATEST
    total: Scalar = 0
    for row in range(count):
        if np.int64(rows[row, last]) > dead_through:
            value = np.int64(rows[row, word])
            n += 1
            least = min(least, value)
            total += value
    return n, least, total
