"""Spark's xxhash64 of key columns, over state words: the hash that decides where a key's state is.

Spark hashes a row column by column: the hash of one is the seed of the next, 42 the first. A null leaves it
as it is. Integers of up to 32 bits, dates, booleans and floats hash as four bytes; other numbers and times
as eight; strings, binary values and wide decimals as their bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from headrace.kernels.core.signature import FLAG, HASHES, HASHES_IN, HEAP_IN, VALID_IN, Scalar
from headrace.row.arrays import U8, U64, Flags
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX

SEED = np.uint64(42)
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LENGTH_BITS, _LENGTH_MAX = np.uint64(LENGTH_BITS), np.uint64(LENGTH_MAX)
_LOW_32 = np.uint64(0xFFFFFFFF)
_ZERO = np.uint64(0)


@njit(nogil=True, cache=True, inline="always")
def _rotate(x: np.uint64, left: np.uint64) -> Scalar:
    return (x << left) | (x >> (np.uint64(64) - left))


@njit(nogil=True, cache=True, inline="always")
def _finish(x: np.uint64) -> Scalar:
    x = (x ^ (x >> np.uint64(33))) * _P2
    x = (x ^ (x >> np.uint64(29))) * _P3
    return x ^ (x >> np.uint64(32))


@njit(nogil=True, cache=True, inline="always")
def _round(lane: np.uint64, word: np.uint64) -> Scalar:
    return _rotate(lane + word * _P2, np.uint64(31)) * _P1


@njit(nogil=True, cache=True, inline="always")
def _four(total: np.uint64, word: np.uint64) -> Scalar:
    return _rotate(total ^ ((word & _LOW_32) * _P1), np.uint64(23)) * _P2 + _P3


@njit(nogil=True, cache=True, inline="always")
def _eight(total: np.uint64, word: np.uint64) -> Scalar:
    return _rotate(total ^ _round(_ZERO, word), np.uint64(27)) * _P1 + _P4


@njit(nogil=True, cache=True, inline="always")
def _word(data: U8, at: int, size: int) -> np.uint64:
    word = _ZERO
    for place in range(size):
        word |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return word


@njit(nogil=True, cache=True)
def _bytes(data: U8, at: int, size: int, seed: np.uint64) -> Scalar:
    end = at + size
    if size >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at + 32 <= end:
            a = _round(a, _word(data, at, 8))
            b = _round(b, _word(data, at + 8, 8))
            c = _round(c, _word(data, at + 16, 8))
            d = _round(d, _word(data, at + 24, 8))
            at += 32
        total = _rotate(a, np.uint64(1)) + _rotate(b, np.uint64(7))
        total += _rotate(c, np.uint64(12)) + _rotate(d, np.uint64(18))
        for lane in (a, b, c, d):
            total = (total ^ _round(_ZERO, lane)) * _P1 + _P4
    else:
        total = seed + _P5
    total += np.uint64(size)
    while at + 8 <= end:
        total = _eight(total, _word(data, at, 8))
        at += 8
    if at + 4 <= end:
        total = _four(total, _word(data, at, 4))
        at += 4
    while at < end:
        total = _rotate(total ^ (np.uint64(data[at]) * _P5), np.uint64(11)) * _P1
        at += 1
    return _finish(total)


@njit([types.void(HASHES, HASHES_IN, VALID_IN, FLAG)], nogil=True, cache=True)
def add_words(hashes: U64, words: U64, valid: Flags, narrow: bool) -> None:
    """Hash one column of words into `hashes`; `narrow` values hash as four bytes."""
    for row in range(hashes.size):
        if valid.size and not valid[row]:
            continue
        if narrow:
            hashes[row] = _finish(_four(hashes[row] + _P5 + np.uint64(4), words[row]))
        else:
            hashes[row] = _finish(_eight(hashes[row] + _P5 + np.uint64(8), words[row]))


@njit([types.void(HASHES, HASHES_IN, HEAP_IN, VALID_IN)], nogil=True, cache=True)
def add_heap(hashes: U64, words: U64, heap: U8, valid: Flags) -> None:
    """Hash one column of strings or binary values into `hashes`."""
    for row in range(hashes.size):
        if valid.size and not valid[row]:
            continue
        at, size = np.int64(words[row] >> _LENGTH_BITS), np.int64(words[row] & _LENGTH_MAX)
        hashes[row] = _bytes(heap, at, size, hashes[row])


@njit([types.void(HASHES, HASHES_IN, HASHES_IN, VALID_IN)], nogil=True, cache=True)
def add_wide(hashes: U64, low: U64, high: U64, valid: Flags) -> None:
    """Hash one column of decimals of more than 18 digits: the shortest big-endian two's complement."""
    data = np.empty(16, np.uint8)
    for row in range(hashes.size):
        if valid.size and not valid[row]:
            continue
        for place in range(8):
            data[place] = np.uint8((high[row] >> np.uint64(56 - 8 * place)) & np.uint64(255))
            data[8 + place] = np.uint8((low[row] >> np.uint64(56 - 8 * place)) & np.uint64(255))
        first = 0
        while first < 15:
            head, following = data[first], data[first + 1]
            if (head == 0 and following < 128) or (head == 255 and following >= 128):
                first += 1
            else:
                break
        hashes[row] = _bytes(data, first, 16 - first, hashes[row])
