"""Sessions: all rows of a key, and merging new rows into existing sessions.

A session row is a state row with an ordinal at the end of its key, so that a key may have several. All rows
of one hash are in a table together or not at all, and are written together: the unit of storage is the
hash. `last` is the word of a session's latest time; in a row that was merged into another session it is
GONE.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from headrace.kernels.core.signature import (
    HASHES_IN,
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
from headrace.kernels.tables.table import DIRTY, EPOCH, MARK, same_key
from headrace.row.arrays import U8, U64, Flags, Ids

GONE = -(1 << 63)

_ROW = np.uint64(0xFFFFFFFF)
_TAG = np.uint64(0xFFFFFFFF00000000)
_ONE = np.uint64(1)
_EMPTY = np.uint64(0)
_FLAGS = types.Array(types.boolean, 1, "C")


@njit([_FLAGS(HASHES_IN, HASHES_IN, HASHES_IN)], nogil=True, cache=True)
def holds(slots: U64, hashes: U64, probes: U64) -> Flags:
    """Whether the table has any row of each hash."""
    mask = np.uint64(len(slots) - 1)
    flags = np.zeros(len(probes), np.bool_)
    for i in range(len(probes)):
        at = probes[i] & mask
        while slots[at] != _EMPTY:
            if slots[at] & _TAG == probes[i] & _TAG and hashes[(slots[at] & _ROW) - _ONE] == probes[i]:
                flags[i] = True
                break
            at = (at + _ONE) & mask
    return flags


@njit([IDS(HASHES_IN, HASHES_IN, IDS_IN, VALID_IN)], nogil=True, cache=True)
def whole(slots: U64, hashes: U64, ids: Ids, dropped: Flags) -> Ids:
    """The rows `ids` without those whose hash has a dropped row."""
    mask = np.uint64(len(slots) - 1)
    kept = np.empty(len(ids), np.int64)
    n = 0
    for i in range(len(ids)):
        hashed = hashes[ids[i]]
        at, alone = hashed & mask, True
        while slots[at] != _EMPTY and alone:
            row = np.int64((slots[at] & _ROW) - _ONE)
            alone = not (dropped[row] and hashes[row] == hashed)
            at = (at + _ONE) & mask
        if alone:
            kept[n] = ids[i]
            n += 1
    return kept[:n].copy()


_ROWS_OF = types.Tuple((IDS, IDS))(
    *(HASHES_IN, WORDS_IN, HASHES_IN, STAMPS, HEAP_IN, IDS),
    *(HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN, I64),
)


@njit([_ROWS_OF], nogil=True, cache=True)
def rows_of(
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
    epoch: int,
) -> tuple[Ids, Ids]:
    """All rows of each key without its ordinal; key i has `ids[starts[i] : starts[i + 1]]`.

    Every row of the hash becomes dirty, also those of another key: they are written together.
    """
    mask, stamp = np.uint64(len(slots) - 1), np.uint32(epoch)
    n = len(probe_hashes)
    starts = np.empty(n + 1, np.int64)
    ids = np.empty(2 * n + 16, np.int64)
    used, dirty = 0, counters[DIRTY]
    for i in range(n):
        starts[i] = used
        at = probe_hashes[i] & mask
        while slots[at] != _EMPTY:
            row = np.int64((slots[at] & _ROW) - _ONE)
            if slots[at] & _TAG == probe_hashes[i] & _TAG and hashes[row] == probe_hashes[i]:
                if stamps[row, EPOCH] != stamp:
                    stamps[row, EPOCH] = stamps[row, MARK] = stamp
                    dirty += 1
                if same_key(rows, row, heap, probe_words, i, probe_heap, variable):
                    if used == len(ids):
                        grown = np.empty(2 * used, np.int64)
                        grown[:used] = ids
                        ids = grown
                    ids[used] = row
                    used += 1
            at = (at + _ONE) & mask
    starts[n] = used
    counters[DIRTY] = dirty
    return starts, ids[:used].copy()


@njit([(WORDS, IDS_IN, IDS_IN, IDS_IN, IDS_IN, IDS_IN, HASHES_IN)], nogil=True, cache=True)
def extend(rows: U64, ids: Ids, begins: Ids, ends: Ids, counts: Ids, words: Ids, has: U64) -> None:
    """Extends sessions over stretches of rows, and counts the rows as changes.

    `words` are the words of the first time, its flag, the last time, its flag and the changes; `has` are
    the flag bits of the first and the last time.
    """
    first, first_flag, last, last_flag, changed = words[0], words[1], words[2], words[3], words[4]
    for i in range(len(ids)):
        row = ids[i]
        new = rows[row, first_flag] & has[0] == np.uint64(0)
        if new or begins[i] < np.int64(rows[row, first]):
            rows[row, first] = np.uint64(begins[i])
        if new or ends[i] > np.int64(rows[row, last]):
            rows[row, last] = np.uint64(ends[i])
        rows[row, first_flag] |= has[0]
        rows[row, last_flag] |= has[1]
        rows[row, changed] += np.uint64(counts[i])


@njit(nogil=True, cache=True)
def _live_by_start(
    ids: Ids, rows: U64, first: int, last: int, dead_through: int, begin: int, end: int, out: Ids
) -> Scalar:
    """Writes the live rows of one key, ordered by start, into `out`; returns their number."""
    n = 0
    for j in range(begin, end):
        row = ids[j]
        if np.int64(rows[row, last]) <= dead_through:
            continue
        at = n
        start = np.int64(rows[row, first])
        while at > 0 and np.int64(rows[out[at - 1], first]) > start:
            out[at] = out[at - 1]
            at -= 1
        out[at] = row
        n += 1
    return n


@njit(nogil=True, cache=True)
def _free_ordinal(ids: Ids, rows: U64, ordinal: int, begin: int, end: int) -> Scalar:
    """The first unused ordinal of one key."""
    free = np.int64(0)
    for j in range(begin, end):
        free = max(free, np.int64(rows[ids[j], ordinal]) + 1)
    return free


_LAID = types.Tuple((IDS, IDS, IDS, IDS, IDS, IDS))(
    *(WORDS_IN, I64, I64, I64, I64, I64), *(IDS_IN, IDS_IN, IDS_IN, IDS_IN, IDS_IN)
)


@njit([_LAID], nogil=True, cache=True)
def lay(
    rows: U64,
    ordinal: int,
    first: int,
    last: int,
    gap: int,
    dead_through: int,
    starts: Ids,
    ids: Ids,
    groups: Ids,
    begins: Ids,
    ends: Ids,
) -> tuple[Ids, Ids, Ids, Ids, Ids, Ids]:
    """Lays stretches of new rows over the sessions of their keys; touching ones become one session.

    Stretch i has rows of key `groups[i]` from time `begins[i]` to `ends[i]`. Stretches are ordered by key,
    then by time, and do not touch each other. Rows with `last` at or below `dead_through` are no sessions.

    Returns, per stretch, its session's number; per session, its row (-1 for a new one), key and the ordinal
    of a new row; and which rows were merged into which session.
    """
    n = len(groups)
    of_stretch = np.empty(n, np.int64)
    row_of, group_of, ordinal_of = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    merged, merged_into = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    alive = np.empty(len(ids), np.int64)
    sessions, lost, i = 0, 0, 0
    while i < n:
        group = groups[i]
        begin, end = starts[group], starts[group + 1]
        free = _free_ordinal(ids, rows, ordinal, begin, end)
        live_count = _live_by_start(ids, rows, first, last, dead_through, begin, end, alive)
        at = 0
        while i < n and groups[i] == group:
            # Starts with the next stretch; sessions that end before it touch nothing.
            while at < live_count and np.int64(rows[alive[at], last]) + gap < begins[i]:
                at += 1
            until, row = ends[i], np.int64(-1)
            of_stretch[i] = sessions
            i += 1
            growing = True
            while growing:
                growing = False
                while at < live_count and np.int64(rows[alive[at], first]) <= until + gap:
                    if row < 0:
                        row = alive[at]
                    else:
                        merged[lost], merged_into[lost] = alive[at], sessions
                        lost += 1
                    until = max(until, np.int64(rows[alive[at], last]))
                    at += 1
                    growing = True
                while i < n and groups[i] == group and begins[i] <= until + gap:
                    of_stretch[i] = sessions
                    until = max(until, ends[i])
                    i += 1
                    growing = True
            row_of[sessions], group_of[sessions], ordinal_of[sessions] = row, group, free
            if row < 0:
                free += 1
            sessions += 1
    return (
        of_stretch,
        row_of[:sessions].copy(),
        group_of[:sessions].copy(),
        ordinal_of[:sessions].copy(),
        merged[:lost].copy(),
        merged_into[:lost].copy(),
    )
