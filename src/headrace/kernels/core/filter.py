"""A Bloom filter per block: about ten bits per key, adjacent in memory.

The block of a hash is known before its filter is read, so each block has its own filter words. The load is
exact (no overfull lines). The filter is built along with the blocks, and ordered probes read it
sequentially.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core.signature import I64
from headrace.row.arrays import U64

_BITS_PER_ROW = 9  # plus the one word that every block adds
_PROBES = 6
_MIX = np.uint64(0xD6E8FEB86659FD93)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@njit([I64(I64, I64)], nogil=True, cache=True)
def filter_start(row_start: int, block: int) -> int:
    """First filter word of a block, after the given rows and blocks; at the end, the total size."""
    return ((row_start * _BITS_PER_ROW) >> 6) + block


@njit(nogil=True, cache=True, inline="always")
def _mixed(hashed: np.uint64) -> np.uint64:
    # Rows of one block share their top bits; the multiplication spreads the low ones.
    x = (hashed ^ (hashed >> _HALF)) * _MIX
    return (x ^ (x >> _HALF)) * _MIX


@njit(nogil=True, cache=True)
def filter_add(words: U64, start: int, end: int, hashed: np.uint64) -> None:
    """Adds a hash to the filter words `[start, end)`."""
    mixed = _mixed(hashed)
    step = (mixed & _LOW) | np.uint64(1)
    at = mixed >> _HALF
    bits = np.uint64((end - start) * 64)
    for _ in range(_PROBES):
        bit = (at * bits) >> _HALF
        words[start + np.int64(bit >> np.uint64(6))] |= np.uint64(1) << (bit & np.uint64(63))
        at = (at + step) & _LOW


@njit(nogil=True, cache=True)
def filter_has(words: U64, start: int, end: int, hashed: np.uint64) -> bool:
    """Whether the hash may have been added; never false for an added hash."""
    mixed = _mixed(hashed)
    step = (mixed & _LOW) | np.uint64(1)
    at = mixed >> _HALF
    bits = np.uint64((end - start) * 64)
    for _ in range(_PROBES):
        bit = (at * bits) >> _HALF
        if not (words[start + np.int64(bit >> np.uint64(6))] >> (bit & np.uint64(63))) & np.uint64(1):
            return False
        at = (at + step) & _LOW
    return True
