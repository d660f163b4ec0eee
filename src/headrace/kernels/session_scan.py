"""Looks at every session of a table, in one pass each and without a copy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from headrace.kernels.signature import I64, IDS, WORDS_IN, Scalar
from headrace.store.run import U64

Ids = npt.NDArray[np.int64]

LATEST = (1 << 63) - 1


@njit([IDS(WORDS_IN, I64, I64, I64, I64)], nogil=True, cache=True)
def ending(rows: U64, count: int, last: int, after: int, through: int) -> Ids:
    """Those of the first `count` rows whose last time is in `(after, through]`."""
    found = np.empty(count, np.int64)
    n: Scalar = 0
    for row in range(count):
        when = np.int64(rows[row, last])
        found[n] = row
        n += after < when <= through
    return found[:n].copy()


@njit([types.Tuple((I64, I64, I64))(WORDS_IN, I64, I64, I64, I64)], nogil=True, cache=True)
def living(rows: U64, count: int, last: int, dead_through: int, word: int) -> tuple[int, int, int]:
    """How many of the first `count` rows are alive; the least (or LATEST) and the sum of a word of them."""
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
