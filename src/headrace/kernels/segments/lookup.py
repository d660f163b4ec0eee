"""Point reads of a segment: interpolate the block, test its filter, read it once, compare keys.

Probes are ordered by hash, so neighbours share reads. Blocks are read by `pread` and never mapped, so the
resident memory is one buffer. Every block is verified on every read, so wrong bytes are never compared.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.core.checksum import xxh64
from headrace.kernels.core.filter import filter_has, filter_start
from headrace.kernels.core.mix import mixed_key
from headrace.kernels.core.signature import (
    HASHES,
    HASHES_IN,
    HEAP,
    HEAP_IN,
    IDS,
    IDS_IN,
    VALID_IN,
    WORDS,
    WORDS_IN,
)
from headrace.kernels.core.signature import I64 as INT
from headrace.kernels.core.signature import U64 as WORD
from headrace.row.arrays import I64, U8, U64, Flags
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX

_pread = types.ExternalFunction("pread", types.int64(types.int32, types.voidptr, types.uint64, types.int64))
_advise = types.ExternalFunction(
    "posix_fadvise", types.int32(types.int32, types.int64, types.int64, types.int32)
)
_WILL_NEED = getattr(os, "POSIX_FADV_WILLNEED", -1)  # not every system has it
_BITS = np.uint64(LENGTH_BITS)
_CROWD = 16  # rows of one hash that are compared one after another
_LENGTH = np.uint64(LENGTH_MAX)


@njit(nogil=True, cache=True)
def _block_of(firsts: U64, last: np.uint64, hashed: np.uint64, floor: Any) -> Any:
    """The last block from `floor` on whose first hash is at most `hashed`; that of `floor` must be."""
    low: Any = floor
    high: Any = firsts.size
    span = np.float64(last - firsts[low]) + 1.0
    guess: Any = low + np.int64(np.float64(hashed - firsts[low]) / span * (high - low))
    guess = min(max(guess, low), high - 1)
    step = 1
    if firsts[guess] <= hashed:
        low = guess
        while low + step < high and firsts[low + step] <= hashed:
            low += step
            step *= 2
        high = min(high, low + step)
    else:
        high = guess
        while high - step > low and firsts[high - step] > hashed:
            high -= step
            step *= 2
        low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) >> 1
        if firsts[middle] <= hashed:
            low = middle
        else:
            high = middle
    return low


@njit([IDS(HASHES_IN, VALID_IN, HASHES_IN, WORD, IDS_IN, HASHES_IN)], nogil=True, cache=True)
def locate(hashes: U64, done: Flags, firsts: U64, last: np.uint64, row_starts: I64, filters: U64) -> I64:
    """The block of each probe, or -1 if it is done, out of range, or excluded by the filter."""
    blocks = np.empty(hashes.size, np.int64)
    block = 0
    for i in range(hashes.size):
        hashed = hashes[i]
        blocks[i] = -1
        if done[i] or hashed < firsts[0] or hashed > last:
            continue
        if block + 1 < firsts.size and firsts[block + 1] <= hashed:
            block = _block_of(firsts, last, hashed, block + 1)
        start = filter_start(row_starts[block], block)
        if filter_has(filters, start, filter_start(row_starts[block + 1], block + 1), hashed):
            blocks[i] = block
    return blocks


@njit(nogil=True, cache=True)
def _read_end(blocks: I64, probe: int, offsets: I64, limit: int) -> Any:
    """The end of the blocks of one read: adjacent blocks that the next probes need, up to `limit` bytes."""
    first = blocks[probe]
    end = first + 1
    for j in range(probe + 1, blocks.size):
        block = blocks[j]
        if block < end:
            continue
        if block > end or offsets[end + 1] - offsets[first] > limit:
            break
        end += 1
    return end


@njit([types.UniTuple(INT, 2)(types.int32, IDS_IN, IDS_IN, INT)], nogil=True, cache=True)
def announce(fd: int, blocks: I64, offsets: I64, limit: int) -> tuple[int, int]:
    """Announces all reads of ordered probes to the operating system, so that the disk serves them in
    parallel. Returns the number of reads and their bytes.
    """
    end: Any = 0
    reads, size = 0, 0
    for i in range(blocks.size):
        first = blocks[i]
        if first >= end:
            end = _read_end(blocks, i, offsets, limit)
            if _WILL_NEED >= 0:
                _advise(fd, offsets[first], offsets[end] - offsets[first], _WILL_NEED)
            reads += 1
            size += offsets[end] - offsets[first]
    return reads, size


@njit(nogil=True, cache=True)
def same_key(row: U64, heap: U8, key: U64, key_heap: U8, variable_key: Flags) -> bool:
    """Whether a row begins with this key: equal words, and equal bytes of variable words."""
    for w in range(key.size):
        if not variable_key[w]:
            if row[w] != key[w]:
                return False
            continue
        if (row[w] ^ key[w]) & _LENGTH:
            return False
        mine, other = np.int64(row[w] >> _BITS), np.int64(key[w] >> _BITS)
        for k in range(np.int64(key[w] & _LENGTH)):
            if heap[mine + k] != key_heap[other + k]:
                return False
    return True


@njit(nogil=True, cache=True)
def _lower_bound(hashes: U64, hashed: np.uint64) -> Any:
    """The first position with a hash of at least `hashed`; hashes are uniform, so it guesses and walks."""
    n: Any = hashes.size
    if hashed <= hashes[0]:
        return 0
    if hashed > hashes[n - 1]:
        return n
    span = np.float64(hashes[n - 1] - hashes[0]) + 1.0
    at: Any = max(1, min(np.int64(np.float64(hashed - hashes[0]) / span * n), n - 1))
    while hashes[at - 1] >= hashed:
        at -= 1
    while hashes[at] < hashed:
        at += 1
    return at


@njit(nogil=True, cache=True)
def _take(row: U64, heap: U8, variable: I64, to: U64, to_heap: U8, used: Any) -> tuple[U8, Any]:
    """Copies a row and its values; the heap grows as needed."""
    to[:] = row
    for v in variable:
        length = np.int64(row[v] & _LENGTH)
        if length == 0:
            continue
        if used + length > to_heap.size:
            grown = np.empty(2 * to_heap.size + length, np.uint8)
            grown[:used] = to_heap[:used]
            to_heap = grown
        start = np.int64(row[v] >> _BITS)
        for k in range(length):
            to_heap[used + k] = heap[start + k]
        to[v] = (np.uint64(used) << _BITS) | np.uint64(length)
        used += length
    return to_heap, used


@njit(nogil=True, cache=True)
def _crowd_of(hashes: U64, rows: U64, heap: U8, first: int, variable_key: Flags) -> I64:
    """Slots with all rows that share the hash of row `first`, by a second hash of their keys."""
    end = first
    while end < hashes.size and hashes[end] == hashes[first]:
        end += 1
    size = 2
    while size < 2 * (end - first):
        size *= 2
    slots, mask = np.full(size, -1, np.int64), np.uint64(size - 1)
    for row in range(first, end):
        at = mixed_key(rows, row, heap, variable_key, hashes[first]) & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = row
    return slots


@njit(nogil=True, cache=True)
def _in_crowd(
    slots: I64, rows: U64, heap: U8, keys: U64, i: int, key_heap: U8, variable_key: Flags, hashed: np.uint64
) -> Any:
    """The row of a key among rows of its hash, or -1."""
    mask = np.uint64(slots.size - 1)
    at = mixed_key(keys, i, key_heap, variable_key[: keys.shape[1]], hashed) & mask
    while slots[at] >= 0:
        if same_key(rows[slots[at]], heap, keys[i], key_heap, variable_key):
            return slots[at]
        at = (at + np.uint64(1)) & mask
    return -1


_FETCH = types.Tuple((INT, HEAP, INT))(
    types.int32, HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN, IDS_IN, IDS_IN, IDS_IN, IDS_IN, HASHES_IN, HASHES,
    types.Array(types.boolean, 1, "C"), WORDS, HEAP, INT,
)  # fmt: skip


@njit([_FETCH], nogil=True, cache=True)
def fetch(
    fd: int,
    hashes: U64,
    keys: U64,
    key_heap: U8,
    variable_key: Flags,
    variable: I64,
    blocks: I64,
    offsets: I64,
    row_starts: I64,
    checks: U64,
    buffer: U64,
    mask: Flags,
    words: U64,
    heap: U8,
    used: int,
) -> tuple[int, U8, int]:
    """Reads the located blocks and copies the rows of the probes' keys.

    Returns the block that could not be read or failed its checksum (or -1), the heap and its used bytes.
    `buffer` must fit the largest block.
    """
    width = words.shape[1]
    first, end = 0, 0
    crowd, crowd_block, crowd_hash = np.empty(0, np.int64), np.int64(-1), np.uint64(0)
    for i in range(hashes.size):
        b = blocks[i]
        if b < 0:
            continue
        if b >= end:
            first, end = b, _read_end(blocks, i, offsets, buffer.size * 8)
            size = offsets[end] - offsets[first]
            if _pread(fd, buffer.ctypes, np.uint64(size), offsets[first]) != size:
                return first, heap, used
            for c in range(first, end):
                part = buffer[(offsets[c] - offsets[first]) >> 3 : (offsets[c + 1] - offsets[first]) >> 3]
                if xxh64(part) != checks[c]:
                    return c, heap, used
        block = buffer[(offsets[b] - offsets[first]) >> 3 : (offsets[b + 1] - offsets[first]) >> 3]
        rows = row_starts[b + 1] - row_starts[b]
        block_rows = block[rows : rows * (width + 1)].reshape(rows, width)
        block_heap = block[rows * (width + 1) :].view(np.uint8)
        at = _lower_bound(block[:rows], hashes[i])
        if at + _CROWD < rows and block[at + _CROWD] == hashes[i]:
            if crowd_block != b or crowd_hash != hashes[i]:
                crowd_block, crowd_hash = b, hashes[i]
                crowd = _crowd_of(block[:rows], block_rows, block_heap, at, variable_key[: keys.shape[1]])
            at = _in_crowd(crowd, block_rows, block_heap, keys, i, key_heap, variable_key, hashes[i])
        while 0 <= at < rows and block[at] == hashes[i]:
            if same_key(block_rows[at], block_heap, keys[i], key_heap, variable_key):
                heap, used = _take(block_rows[at], block_heap, variable, words[i], heap, used)
                mask[i] = True
                break
            at += 1
    return -1, heap, used
