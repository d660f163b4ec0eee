"""128-bit two's complement integers as (low, high) words: the representation of decimals."""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core.signature import Scalar

Wide = tuple[np.uint64, np.uint64]


@njit(nogil=True, cache=True)
def is_negative(high: np.uint64) -> Scalar:
    return np.int64(high) < 0


@njit(nogil=True, cache=True)
def add(a_low: np.uint64, a_high: np.uint64, b_low: np.uint64, b_high: np.uint64) -> Wide:
    """The sum modulo 2^128."""
    low = a_low + b_low
    carry = np.uint64(1) if low < a_low else np.uint64(0)
    return low, a_high + b_high + carry


@njit(nogil=True, cache=True)
def compare(a_low: np.uint64, a_high: np.uint64, b_low: np.uint64, b_high: np.uint64) -> Scalar:
    """-1, 0 or 1, signed."""
    if a_high != b_high:
        return -1 if np.int64(a_high) < np.int64(b_high) else 1
    if a_low != b_low:
        return -1 if a_low < b_low else 1
    return 0


@njit(nogil=True, cache=True)
def reaches(low: np.uint64, high: np.uint64, limit_low: np.uint64, limit_high: np.uint64) -> Scalar:
    """Whether the magnitude is at least the (unsigned) limit."""
    if is_negative(high):
        low, high = ~low + np.uint64(1), ~high
        if low == np.uint64(0):
            high += np.uint64(1)
    if high != limit_high:
        return high > limit_high
    return low >= limit_low


@njit(nogil=True, cache=True)
def overflowed(a_high: np.uint64, b_high: np.uint64, sum_high: np.uint64) -> Scalar:
    """Whether a + b exceeds 128 bits: two operands of one sign gave a sum of the other."""
    return is_negative(a_high) == is_negative(b_high) and is_negative(a_high) != is_negative(sum_high)
