"""A second hash of a key, for the rare keys whose first hashes are equal."""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core import bytes as heap_bytes
from headrace.row.arrays import U8, U64, Flags

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


@njit(nogil=True, cache=True)
def mixed_key(words: U64, i: int, heap: U8, variable: Flags, seed: np.uint64) -> np.uint64:
    """Mixes all words of a key, and the bytes behind variable words."""
    mixed = seed ^ _FACTOR
    for word in range(len(variable)):
        value = words[i, word]
        if variable[word]:
            size, at = heap_bytes.length(value), heap_bytes.offset(value)
            mixed = (mixed ^ np.uint64(size)) * _FACTOR
            for step in range(size):
                mixed = (mixed ^ np.uint64(heap[at + step])) * _FACTOR
                mixed ^= mixed >> _SHIFT
        else:
            mixed = (mixed ^ value) * _FACTOR
            mixed ^= mixed >> _SHIFT
            mixed *= _FACTOR
        mixed ^= mixed >> _SHIFT
    return mixed
