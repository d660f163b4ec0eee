"""Which session a kept row belongs to; sessions and rows are ordered by hash."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from headrace.kernels import bytes as heap_bytes
from headrace.kernels.session import _EMPTY, _ONE, _ROW, _TAG
from headrace.kernels.signature import HASHES_IN, HEAP_IN, I64, IDS, IDS_IN, VALID_IN, WORDS_IN, Scalar
from headrace.store.run import U8, U64

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


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
    """The session of each row, or -1: the same key, and a time from its first to its last one.

    `key` and `row_key` are the words of the key in a session and in a row; `variable` says which of them
    point into the heap.
    """
    found = np.full(len(row_hashes), -1, np.int64)
    begin = 0
    for i in range(len(row_hashes)):
        while begin < len(hashes) and hashes[begin] < row_hashes[i]:
            begin += 1
        at, when = begin, np.int64(rows[i, time])
        while at < len(hashes) and hashes[at] == row_hashes[i]:
            inside = np.int64(sessions[at, first]) <= when <= np.int64(sessions[at, last])
            if inside and _same(sessions[at], heap, key, rows[i], row_heap, row_key, variable):
                found[i] = at
                break
            at += 1
    return found


@njit(
    [(HASHES_IN, WORDS_IN, HASHES_IN, HASHES_IN, IDS_IN, I64, I64, I64, IDS)],
    nogil=True,
    cache=True,
)
def covered(
    slots: U64,
    rows: U64,
    hashes: U64,
    asked: U64,
    times: Ids,
    first: int,
    last: int,
    dead_through: int,
    found: Ids,
) -> None:
    """Whether a table's live session may cover each (hash, time): 1 or 0; 1 where there is no such hash."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(asked)):
        at = asked[i] & mask
        there: Scalar = False
        inside: Scalar = False
        while slots[at] != _EMPTY and not inside:
            row = np.int64((slots[at] & _ROW) - _ONE)
            if slots[at] & _TAG == asked[i] & _TAG and hashes[row] == asked[i]:
                there = True
                until = np.int64(rows[row, last])
                inside = until > dead_through and np.int64(rows[row, first]) <= times[i] <= until
            at = (at + _ONE) & mask
        found[i] = 1 if inside or not there else 0
