"""The open-addressing index of a table: linear probing over a power of two of slots.

    slot = tag (the hash's upper 32 bits) << 32 | row + 1          0 is an empty slot

The lower bits of the hash choose the slot: its top bits chose the partition and are alike within one. Two
keys of equal hash stay two keys, because the words of the keys decide, and the bytes of variable words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from headrace.kernels import bytes as heap_bytes
from headrace.kernels.bytes import GARBAGE, USED
from headrace.kernels.signature import (
    HASHES,
    HASHES_IN,
    HEAP,
    HEAP_IN,
    I64,
    IDS,
    IDS_IN,
    STAMPS,
    VALID_IN,
    WORDS,
    WORDS_IN,
    Scalar,
)
from headrace.store.run import U8, U64

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Where a table keeps its counters between calls, after the heap's USED and GARBAGE.
COUNT, DIRTY, FRESH, TOUCHED = 2, 3, 4, 5

# Rows whose memory is asked for before the first of them is needed.
_AHEAD = 64

_ROW = np.uint64(0xFFFFFFFF)
_TAG = np.uint64(0xFFFFFFFF00000000)
_ONE = np.uint64(1)
_EMPTY = np.uint64(0)


@njit(nogil=True, cache=True)
def same_key(
    row_words: U64, row: int, heap: U8, words: U64, i: int, probe_heap: U8, variable: Flags
) -> bool:
    for word in range(len(variable)):  # a probe may be whole rows: the key is their first words
        held, asked = row_words[row, word], words[i, word]
        if variable[word]:
            if not heap_bytes.same(held, heap, asked, probe_heap):
                return False
        elif held != asked:
            return False
    return True


@njit(nogil=True, cache=True)
def same_words(row_words: U64, row: int, words: U64, i: int, n: int) -> bool:
    """`same_key` where no word is variable."""
    same = True
    for word in range(n):
        same &= row_words[row, word] == words[i, word]
    return same


@njit(nogil=True, cache=True)
def key_bytes(words: U64, i: int, variable: Flags) -> int:
    held = 0
    for word in range(len(variable)):
        if variable[word]:
            held += heap_bytes.length(words[i, word])
    return held


@njit(nogil=True, cache=True)
def write_key(
    rows: U64, row: int, heap: U8, used: int, words: U64, i: int, probe_heap: U8, variable: Flags
) -> int:
    """Copy a key into a new row; returns the heap's new end."""
    for word in range(len(variable)):
        said = words[i, word]
        if variable[word]:
            size = heap_bytes.length(said)
            heap_bytes.copy(probe_heap, heap_bytes.offset(said), heap, used, size)
            said = heap_bytes.pointer(used, size)
            used += size
        rows[row, word] = said
    return used


@njit(nogil=True, cache=True)
def touch(slots: U64, rows: U64, stamps: npt.NDArray[np.uint32], probe_hashes: U64, start: int) -> Scalar:
    """Bring what the next probes will read into the cache: loads that do not wait for each other overlap.

    The value only keeps the compiler from leaving the loads out.
    """
    mask = np.uint64(len(slots) - 1)
    seen = np.uint64(0)
    found = np.empty(_AHEAD, np.uint64)
    n = min(_AHEAD, len(probe_hashes) - start)
    for i in range(n):
        found[i] = slots[probe_hashes[start + i] & mask] & _ROW
    for i in range(n):
        if found[i] != _EMPTY:
            row = found[i] - _ONE
            seen ^= rows[row, 0] ^ np.uint64(stamps[row])
    return np.int64(seen)


@njit(
    [
        I64(
            *(HASHES, WORDS, HASHES, STAMPS, HEAP, IDS),
            *(HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN),
            *(I64, I64, IDS, IDS),
        )
    ],
    nogil=True,
    cache=True,
)
def upsert(
    slots: U64,
    rows: U64,
    hashes: U64,
    stamps: npt.NDArray[np.uint32],
    heap: U8,
    counters: Ids,
    probe_hashes: U64,
    probe_words: U64,
    probe_heap: U8,
    variable: Flags,
    start: int,
    epoch: int,
    ids: Ids,
    fresh: Ids,
) -> int:
    """Find or insert the keys from `start` on; returns where it stopped for want of room, or their end."""
    mask = np.uint64(len(slots) - 1)
    stamp = np.uint32(epoch)
    n_words, fixed = len(variable), not variable.any()
    count, used, dirty, new = counters[COUNT], counters[USED], counters[DIRTY], counters[FRESH]
    stopped = len(probe_hashes)
    for i in range(start, len(probe_hashes)):
        if (i - start) % _AHEAD == 0:
            counters[TOUCHED] = touch(slots, rows, stamps, probe_hashes, i)
        tag = probe_hashes[i] & _TAG
        at = probe_hashes[i] & mask
        row: Scalar = -1
        while row < 0:
            slot = slots[at]
            if slot == _EMPTY:
                break
            if slot & _TAG == tag:
                held = np.int64((slot & _ROW) - _ONE)
                if fixed:
                    same = same_words(rows, held, probe_words, i, n_words)
                else:
                    same = same_key(rows, held, heap, probe_words, i, probe_heap, variable)
                if same:
                    row = held
            at = (at + _ONE) & mask
        if row < 0:
            needed = 0 if fixed else key_bytes(probe_words, i, variable)
            if count == len(hashes) or used + needed > len(heap):
                stopped = i
                break
            row = count
            count += 1
            if fixed:
                for word in range(n_words):
                    rows[row, word] = probe_words[i, word]
            else:
                used = write_key(rows, row, heap, used, probe_words, i, probe_heap, variable)
            hashes[row] = probe_hashes[i]
            slots[at] = tag | np.uint64(count)
            fresh[new] = row
            new += 1
        if stamps[row] != stamp:
            stamps[row] = stamp
            dirty += 1
        ids[i] = row
    counters[COUNT], counters[USED], counters[DIRTY], counters[FRESH] = count, used, dirty, new
    return stopped


@njit([(HASHES_IN, WORDS_IN, HEAP_IN, HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN, IDS)], nogil=True, cache=True)
def find(
    slots: U64, rows: U64, heap: U8, probe_hashes: U64, probe_words: U64, probe_heap: U8, variable: Flags,
    ids: Ids,
) -> None:  # fmt: skip
    """The row of each key, or -1; changes nothing."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(probe_hashes)):
        tag = probe_hashes[i] & _TAG
        at = probe_hashes[i] & mask
        ids[i] = -1
        while slots[at] != _EMPTY:
            if slots[at] & _TAG == tag:
                held = np.int64((slots[at] & _ROW) - _ONE)
                if same_key(rows, held, heap, probe_words, i, probe_heap, variable):
                    ids[i] = held
                    break
            at = (at + _ONE) & mask


@njit([(HASHES, HASHES_IN, I64)], nogil=True, cache=True)
def reindex(slots: U64, hashes: U64, count: int) -> None:
    """Enter the first `count` rows into empty slots; their keys are known to differ."""
    mask = np.uint64(len(slots) - 1)
    for row in range(count):
        at = hashes[row] & mask
        while slots[at] != _EMPTY:
            at = (at + _ONE) & mask
        slots[at] = (hashes[row] & _TAG) | np.uint64(row + 1)


@njit([(WORDS, HEAP, IDS, IDS_IN, WORDS_IN, HEAP_IN, I64, VALID_IN)], nogil=True, cache=True)
def fill(
    rows: U64, heap: U8, counters: Ids, ids: Ids, words: U64, words_heap: U8, start: int, variable: Flags
) -> None:
    """Overwrite the words from `start` on with loaded ones, whose values the heap has room for."""
    for i in range(len(ids)):
        for word in range(start, rows.shape[1]):
            said = words[i, word]
            if variable[word]:
                counters[GARBAGE] += heap_bytes.length(rows[ids[i], word])
                size, at = heap_bytes.length(said), counters[USED]
                heap_bytes.copy(words_heap, heap_bytes.offset(said), heap, at, size)
                said = heap_bytes.pointer(at, size)
                counters[USED] += size
            rows[ids[i], word] = said
