"""The session of a kept row; sessions and rows are ordered by hash."""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core import bytes as heap_bytes
from headrace.kernels.core.signature import HASHES_IN, HEAP_IN, I64, IDS, IDS_IN, VALID_IN, WORDS_IN, Scalar
from headrace.kernels.sessions.session import _EMPTY, _ONE, _ROW, _TAG
from headrace.row.arrays import U8, U64, Flags, Ids


@njit(nogil=True, cache=True)
def _same(a: U64, a_heap: U8, a_words: Ids, b: U64, b_heap: U8, b_words: Ids, variable: Flags) -> bool:
    for word in range(len(a_words)):
        left, right = a[a_words[word]], b[b_words[word]]
        if variable[word]:
            if not heap_bytes.same(left, a_heap, right, b_heap):
                return False
        elif left != right:
            return False
    return True


@njit(
    [
        IDS(
            HASHES_IN,
            WORDS_IN,
            HEAP_IN,
            IDS_IN,
            I64,
            I64,
            HASHES_IN,
            WORDS_IN,
            HEAP_IN,
            IDS_IN,
            I64,
            VALID_IN,
        )
    ],
    nogil=True,
    cache=True,
)
def match(
    hashes: U64,
    sessions: U64,
    heap: U8,
    key: Ids,
    first: int,
    last: int,
    row_hashes: U64,
    rows: U64,
    row_heap: U8,
    row_key: Ids,
    time: int,
    variable: Flags,
) -> Ids:
    """The session of each row, or -1: equal key, and a time between the session's first and last.

    `key` and `row_key` are the words of the key in a session and in a row; `variable` flags those that
    point into the heap.
    """
    session_of = np.full(len(row_hashes), -1, np.int64)
    begin = 0
    for i in range(len(row_hashes)):
        while begin < len(hashes) and hashes[begin] < row_hashes[i]:
            begin += 1
        at, when = begin, np.int64(rows[i, time])
        while at < len(hashes) and hashes[at] == row_hashes[i]:
            inside = np.int64(sessions[at, first]) <= when <= np.int64(sessions[at, last])
            if inside and _same(sessions[at], heap, key, rows[i], row_heap, row_key, variable):
                session_of[i] = at
                break
            at += 1
    return session_of


@njit(
    [(HASHES_IN, WORDS_IN, HASHES_IN, HASHES_IN, IDS_IN, I64, I64, I64, IDS)],
    nogil=True,
    cache=True,
)
def covered(
    slots: U64,
    rows: U64,
    hashes: U64,
    probes: U64,
    times: Ids,
    first: int,
    last: int,
    dead_through: int,
    result: Ids,
) -> None:
    """1 if a live session of the table may cover the (hash, time), else 0; 1 for a hash without rows."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(probes)):
        at = probes[i] & mask
        has_hash: Scalar = False
        inside: Scalar = False
        while slots[at] != _EMPTY and not inside:
            row = np.int64((slots[at] & _ROW) - _ONE)
            if slots[at] & _TAG == probes[i] & _TAG and hashes[row] == probes[i]:
                has_hash = True
                until = np.int64(rows[row, last])
                inside = until > dead_through and np.int64(rows[row, first]) <= times[i] <= until
            at = (at + _ONE) & mask
        result[i] = 1 if inside or not has_hash else 0
