"""The open-addressing index of a table: linear probing over a power of two of slots.

    slot = tag (the hash's upper 32 bits) << 32 | row + 1          0 is an empty slot

The lower bits of the hash choose the slot, because the top bits are alike within a partition. Two keys of
equal hash stay two keys, because words are compared, and bytes of variable words.

A probe that meets `crowd` other keys with its tag goes on at a second hash of its key. Keys that all share
one hash therefore take linear time. Every search and insertion of a table has the same `crowd`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from headrace.kernels.core import bytes as heap_bytes
from headrace.kernels.core.bytes import GARBAGE, USED
from headrace.kernels.core.mix import mixed_key
from headrace.kernels.core.signature import (
    FLAG,
    FLAGS,
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
from headrace.row.arrays import U8, U64, Flags, Ids

EPOCH, MARK = 0, 1  # positions of a row's stamps

# Positions of a table's counters, after the heap's USED and GARBAGE.
COUNT, DIRTY, FRESH, TOUCHED = 2, 3, 4, 5

# Rows that are loaded into the cache ahead of their use.
_AHEAD = 64

_ROW = np.uint64(0xFFFFFFFF)
_TAG = np.uint64(0xFFFFFFFF00000000)
_ONE = np.uint64(1)
_EMPTY = np.uint64(0)


@njit(nogil=True, cache=True)
def same_key(
    row_words: U64, row: int, heap: U8, words: U64, i: int, probe_heap: U8, variable: Flags
) -> bool:
    for word in range(len(variable)):  # a probe may be a whole row: the key is its first words
        stored, probe = row_words[row, word], words[i, word]
        if variable[word]:
            if not heap_bytes.same(stored, heap, probe, probe_heap):
                return False
        elif stored != probe:
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
    size = 0
    for word in range(len(variable)):
        if variable[word]:
            size += heap_bytes.length(words[i, word])
    return size


@njit(nogil=True, cache=True)
def write_key(
    rows: U64, row: int, heap: U8, used: int, words: U64, i: int, probe_heap: U8, variable: Flags
) -> int:
    """Copies a key into a new row; returns the heap's new end."""
    for word in range(len(variable)):
        value = words[i, word]
        if variable[word]:
            size = heap_bytes.length(value)
            heap_bytes.copy(probe_heap, heap_bytes.offset(value), heap, used, size)
            value = heap_bytes.pointer(used, size)
            used += size
        rows[row, word] = value
    return used


@njit(nogil=True, cache=True)
def touch(slots: U64, rows: U64, stamps: npt.NDArray[np.uint32], probe_hashes: U64, start: int) -> Scalar:
    """Loads the memory of the next probes into the cache: independent loads overlap.

    The result only prevents the compiler from removing the loads.
    """
    mask = np.uint64(len(slots) - 1)
    mixed = np.uint64(0)
    candidates = np.empty(_AHEAD, np.uint64)
    n = min(_AHEAD, len(probe_hashes) - start)
    for i in range(n):
        candidates[i] = slots[probe_hashes[start + i] & mask] & _ROW
    for i in range(n):
        if candidates[i] != _EMPTY:
            row = candidates[i] - _ONE
            mixed ^= rows[row, 0] ^ np.uint64(stamps[row, EPOCH])
    return np.int64(mixed)


@njit(
    [
        I64(
            *(HASHES, WORDS, HASHES, STAMPS, HEAP, IDS),
            *(HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN),
            *(I64, I64, I64, I64, FLAG, IDS, IDS),
        )
    ],
    nogil=True,
    cache=True,
)
def upsert(
    slots: U64, rows: U64, hashes: U64, stamps: npt.NDArray[np.uint32], heap: U8, counters: Ids,
    probe_hashes: U64, probe_words: U64, probe_heap: U8, variable: Flags,
    crowd: int, start: int, epoch: int, mark: int, chance: bool, ids: Ids, fresh: Ids,
) -> int:  # fmt: skip
    """Finds or inserts the keys from `start` on; returns the end, or the position where room ran out.

    A row's mark never moves back. With a second chance a row that is there already keeps its mark, and its
    lowest bit records the use.
    """
    mask = np.uint64(len(slots) - 1)
    stamp, used_mark = np.uint32(epoch), np.uint32(mark)
    n_words, fixed = len(variable), not variable.any()
    count, used, dirty, new = counters[COUNT], counters[USED], counters[DIRTY], counters[FRESH]
    stopped = len(probe_hashes)
    for i in range(start, len(probe_hashes)):
        if (i - start) % _AHEAD == 0:
            counters[TOUCHED] = touch(slots, rows, stamps, probe_hashes, i)
        tag = probe_hashes[i] & _TAG
        at = probe_hashes[i] & mask
        row: Scalar = -1
        strangers = 0
        while row < 0:
            slot = slots[at]
            if slot == _EMPTY:
                break
            if slot & _TAG == tag:
                candidate = np.int64((slot & _ROW) - _ONE)
                if fixed:
                    same = same_words(rows, candidate, probe_words, i, n_words)
                else:
                    same = same_key(rows, candidate, heap, probe_words, i, probe_heap, variable)
                if same:
                    row = candidate
                    break
                strangers += 1
                if strangers == crowd:
                    at = mixed_key(probe_words, i, probe_heap, variable, tag) & mask
                    continue
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
            stamps[row, MARK] = used_mark
        elif chance:
            stamps[row, MARK] |= np.uint32(1)
        elif np.int32(used_mark - stamps[row, MARK]) > 0:
            stamps[row, MARK] = used_mark
        if stamps[row, EPOCH] != stamp:
            stamps[row, EPOCH] = stamp
            dirty += 1
        ids[i] = row
    counters[COUNT], counters[USED], counters[DIRTY], counters[FRESH] = count, used, dirty, new
    return stopped


@njit(
    [(HASHES_IN, WORDS_IN, HEAP_IN, HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN, I64, IDS)],
    nogil=True,
    cache=True,
)
def find(
    slots: U64, rows: U64, heap: U8, probe_hashes: U64, probe_words: U64, probe_heap: U8, variable: Flags,
    crowd: int, ids: Ids,
) -> None:  # fmt: skip
    """The row of each key, or -1; read-only."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(probe_hashes)):
        tag = probe_hashes[i] & _TAG
        at = probe_hashes[i] & mask
        ids[i] = -1
        strangers = 0
        while slots[at] != _EMPTY:
            if slots[at] & _TAG == tag:
                candidate = np.int64((slots[at] & _ROW) - _ONE)
                if same_key(rows, candidate, heap, probe_words, i, probe_heap, variable):
                    ids[i] = candidate
                    break
                strangers += 1
                if strangers == crowd:
                    at = mixed_key(probe_words, i, probe_heap, variable, tag) & mask
                    continue
            at = (at + _ONE) & mask


@njit([(HASHES_IN, HASHES_IN, STAMPS, HASHES_IN, I64, FLAG, FLAGS)], nogil=True, cache=True)
def expect(
    slots: U64,
    hashes: U64,
    stamps: npt.NDArray[np.uint32],
    probe_hashes: U64,
    mark: int,
    renews: bool,
    resident: Flags,
) -> None:
    """Which hashes have a row here; with `renews`, the marks of these rows move up to `mark`."""
    mask, expected = np.uint64(len(slots) - 1), np.uint32(mark)
    for i in range(len(probe_hashes)):
        at = probe_hashes[i] & mask
        while slots[at] != _EMPTY:
            row = np.int64((slots[at] & _ROW) - _ONE)
            if hashes[row] == probe_hashes[i]:
                resident[i] = True
                if renews and np.int32(expected - stamps[row, MARK]) > 0:
                    stamps[row, MARK] = expected
            at = (at + _ONE) & mask


@njit([(HASHES, HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN, I64, I64)], nogil=True, cache=True)
def reindex(slots: U64, hashes: U64, rows: U64, heap: U8, variable: Flags, crowd: int, count: int) -> None:
    """Enters the first `count` rows, which have distinct keys, into empty slots."""
    mask = np.uint64(len(slots) - 1)
    for row in range(count):
        tag, at, strangers = hashes[row] & _TAG, hashes[row] & mask, 0
        while slots[at] != _EMPTY:
            if slots[at] & _TAG == tag:
                strangers += 1
                if strangers == crowd:
                    at = mixed_key(rows, row, heap, variable, tag) & mask
                    continue
            at = (at + _ONE) & mask
        slots[at] = tag | np.uint64(row + 1)


@njit([(WORDS, HEAP, IDS, IDS_IN, WORDS_IN, HEAP_IN, I64, VALID_IN)], nogil=True, cache=True)
def fill(
    rows: U64, heap: U8, counters: Ids, ids: Ids, words: U64, words_heap: U8, start: int, variable: Flags
) -> None:
    """Overwrites the words from `start` on with loaded words; the heap must have room for their values."""
    for i in range(len(ids)):
        for word in range(start, rows.shape[1]):
            value = words[i, word]
            if variable[word]:
                counters[GARBAGE] += heap_bytes.length(rows[ids[i], word])
                size, at = heap_bytes.length(value), counters[USED]
                heap_bytes.copy(words_heap, heap_bytes.offset(value), heap, at, size)
                value = heap_bytes.pointer(at, size)
                counters[USED] += size
            rows[ids[i], word] = value
