"""XXH64 with seed 0 over 64-bit words: the checksum of everything in a segment.

It is the public XXH64 of the words' little-endian bytes, so any other tool can check a file. It runs at
about memory speed, so every block is verified on every read.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core.signature import HASHES_IN
from headrace.kernels.core.signature import U64 as WORD
from headrace.row.arrays import U64

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_MINUS_P1 = np.uint64((-0x9E3779B185EBCA87) % 2**64)
_P1_P2 = np.uint64((0x9E3779B185EBCA87 + 0xC2B2AE3D27D4EB4F) % 2**64)
_ZERO = np.uint64(0)


@njit(nogil=True, cache=True, inline="always")
def _rotate(x: np.uint64, left: np.uint64) -> np.uint64:
    return (x << left) | (x >> (np.uint64(64) - left))


@njit(nogil=True, cache=True, inline="always")
def _round(lane: np.uint64, word: np.uint64) -> np.uint64:
    lane = lane + word * _P2
    return ((lane << np.uint64(31)) | (lane >> np.uint64(33))) * _P1


@njit(nogil=True, cache=True, inline="always")
def _fold(total: np.uint64, lane: np.uint64) -> np.uint64:
    folded: np.uint64 = (total ^ _round(_ZERO, lane)) * _P1 + _P4
    return folded


@njit([WORD(HASHES_IN)], nogil=True, cache=True)
def xxh64(words: U64) -> np.uint64:
    """XXH64 of the bytes of `words`."""
    n = words.size
    at = 0
    if n >= 4:
        a, b, c, d = _P1_P2, _P2, _ZERO, _MINUS_P1
        while at + 4 <= n:
            a = _round(a, words[at])
            b = _round(b, words[at + 1])
            c = _round(c, words[at + 2])
            d = _round(d, words[at + 3])
            at += 4
        total = _rotate(a, np.uint64(1)) + _rotate(b, np.uint64(7))
        total += _rotate(c, np.uint64(12)) + _rotate(d, np.uint64(18))
        total = _fold(_fold(_fold(_fold(total, a), b), c), d)
    else:
        total = _P5
    total += np.uint64(n * 8)
    while at < n:
        total ^= _round(_ZERO, words[at])
        total = _rotate(total, np.uint64(27)) * _P1 + _P4
        at += 1
    total = (total ^ (total >> np.uint64(33))) * _P2
    total = (total ^ (total >> np.uint64(29))) * _P3
    digest: np.uint64 = total ^ (total >> np.uint64(32))
    return digest
