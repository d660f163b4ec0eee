"""Rows of equal keys in ordered runs, found by walking all runs at once.

Runs lie one after another in an array of hashes with a place between them, and one after the last:

    hashes = run 0 · PAST · run 1 · PAST · …

A step takes the smallest hash that a run is at, numbers it, and moves every run on that is at it. It has no
branch that data decides; what it costs is the number of runs, not whether they have the same keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from headrace.kernels import table
from headrace.kernels.bytes import USED
from headrace.kernels.signature import (
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
from headrace.store.run import U8, U64

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

PAST = np.uint64(0xFFFFFFFFFFFFFFFF)  # a hash too, of which a run may have rows


@njit([I64(HASHES_IN, IDS_IN, IDS)], nogil=True, cache=True)
def number(hashes: U64, starts: Ids, ids: Ids) -> int:
    """Number each row by its hash in ascending order; returns how many numbers there are.

    `starts` has the first place of each run, and the end of all. Where a run has rows of the same hash, the
    first of each run have one number, the second the next, and so on.
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
            ids[place] = count  # written again if the run stays
            place += heads[run] == least
            at[run] = place
            heads[run] = hashes[place]
        count += 1
    most: Scalar = 0
    for run in range(runs):  # what is left has the hash that says the end
        left = starts[run + 1] - 1 - at[run]
        for row in range(left):
            ids[at[run] + row] = count + row
        most = max(most, left)
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
    """Write the keys of rows that have none yet; False where a row has another key already.

    The heap has room for every key of the run.
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
