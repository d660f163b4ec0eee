"""Numbering of equal keys in several ordered runs, in one pass over all runs.

Runs are concatenated in an array of hashes, each followed by an end mark:

    hashes = run 0 · PAST · run 1 · PAST · …

A step takes the smallest hash at any run's position, numbers it, and advances every run that has it. No
branch depends on the data. The cost depends on the number of runs, not on how many keys they share.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core.bytes import USED
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
    VALID_IN,
    WORDS,
    WORDS_IN,
    Scalar,
)
from headrace.kernels.tables import table
from headrace.row.arrays import U8, U64, Flags, Ids

PAST = np.uint64(0xFFFFFFFFFFFFFFFF)  # also a valid hash, so a run may have rows of it


@njit([I64(HASHES_IN, IDS_IN, IDS)], nogil=True, cache=True)
def number(hashes: U64, starts: Ids, ids: Ids) -> int:
    """Numbers each row by its hash in ascending order; returns the count of numbers.

    `starts` has the first position of each run, and the end of all. Where a run has several rows of a hash,
    the first rows of all runs share a number, the second rows share the next, and so on.
    """
    runs = len(starts) - 1
    at, heads = starts[:-1].copy(), np.empty(runs, np.uint64)
    for run in range(runs):
        heads[run] = hashes[at[run]]
    count: Scalar = 0
    while True:
        least = heads[0]
        for run in range(1, runs):
            least = min(least, heads[run])
        if least == PAST:
            break
        for run in range(runs):
            place = at[run]
            ids[place] = count  # overwritten if the run does not advance
            place += heads[run] == least
            at[run] = place
            heads[run] = hashes[place]
        count += 1
    most: Scalar = 0
    for run in range(runs):  # the remaining rows have the hash of the end mark
        remaining = starts[run + 1] - 1 - at[run]
        for row in range(remaining):
            ids[at[run] + row] = count + row
        most = max(most, remaining)
    return int(count + most)


@njit(
    [FLAG(WORDS, HASHES, HEAP, IDS, FLAGS, IDS_IN, HASHES_IN, WORDS_IN, HEAP_IN, VALID_IN)],
    nogil=True,
    cache=True,
)
def enter(
    rows: U64,
    hashes: U64,
    heap: U8,
    counters: Ids,
    entered: Flags,
    ids: Ids,
    run_hashes: U64,
    run_words: U64,
    run_heap: U8,
    variable: Flags,
) -> bool:
    """Writes the keys of rows without one; False if a row has another key already.

    The heap must have room for every key of the run.
    """
    n_words, fixed = len(variable), not variable.any()
    used, same = counters[USED], True
    for i in range(len(ids)):
        row = ids[i]
        if not entered[row]:
            entered[row] = True
            hashes[row] = run_hashes[i]
            if fixed:
                for word in range(n_words):
                    rows[row, word] = run_words[i, word]
            else:
                used = table.write_key(rows, row, heap, used, run_words, i, run_heap, variable)
        elif fixed:
            same &= table.same_words(rows, row, run_words, i, n_words)
        else:
            same &= table.same_key(rows, row, heap, run_words, i, run_heap, variable)
    counters[USED] = used
    return same
