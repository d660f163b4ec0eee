"""Grouping kept rows that are ordered by hash: rows of one key and one window start are one group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headrace.kernels.lookup import Mask, same_key
from headrace.kernels.pack import I64
from headrace.kernels.signature import HASHES_IN, HEAP_IN, IDS, IDS_IN, VALID_IN, WORDS_IN
from headrace.store.run import U8, U64


@njit([types.Tuple((IDS, IDS))(HASHES_IN, WORDS_IN, HEAP_IN, IDS_IN, VALID_IN)], nogil=True, cache=True)
def group_rows(hashes: U64, words: U64, heap: U8, starts: I64, variable_key: Mask) -> tuple[I64, I64]:
    """The group of each row, and the first row of each group; groups are numbered as they appear.

    `starts` has the window start of each row, or none where all rows are of one window. Equal hashes of
    different keys stay apart, because the words of the keys decide, and the bytes of variable words.
    """
    n, width = len(hashes), len(variable_key)
    of_row, firsts = np.empty(n, np.int64), np.empty(n, np.int64)
    groups: Any = 0
    begin: Any = 0  # the first group of the current hash
    for i in range(n):
        if i > 0 and hashes[i] != hashes[i - 1]:
            begin = groups
        found: Any = -1
        for back in range(groups - begin):  # the latest group first: rows of one group mostly lie together
            group = groups - 1 - back
            row = firsts[group]
            if len(starts) > 0 and starts[row] != starts[i]:
                continue
            if same_key(words[row], heap, words[i][:width], heap, variable_key):
                found = group
                break
        if found < 0:
            found = groups
            firsts[groups] = i
            groups += 1
        of_row[i] = found
    return of_row, firsts[:groups].copy()
