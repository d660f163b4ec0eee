"""The newest of several writings of a hash: a small table of the hashes in question."""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core.signature import HASHES_IN, I64, IDS, IDS_IN
from headrace.row.arrays import U64, Ids


@njit([(HASHES_IN, IDS_IN, IDS, IDS, IDS)], nogil=True, cache=True)
def enter(hashes: U64, numbers: Ids, slots: Ids, same: Ids, newest: Ids) -> None:
    """Enters hashes into `slots` (a power of two of them, all -1) with the largest number of each.

    `same[i]` becomes the first position of hash i, and `newest` has the hash's largest number at that
    position.
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(len(hashes)):
        at = hashes[i] & mask
        while slots[at] >= 0 and hashes[slots[at]] != hashes[i]:
            at = (at + np.uint64(1)) & mask
        if slots[at] < 0:
            slots[at] = i
            newest[i] = numbers[i]
        first = slots[at]
        same[i] = first
        newest[first] = max(newest[first], numbers[i])


@njit([(HASHES_IN, I64, HASHES_IN, IDS_IN, IDS)], nogil=True, cache=True)
def overtake(others: U64, number: int, hashes: U64, slots: Ids, newest: Ids) -> None:
    """Raises the number of the hashes that are among the others to `number`."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(others)):
        at = others[i] & mask
        while slots[at] >= 0:
            if hashes[slots[at]] == others[i]:
                newest[slots[at]] = max(newest[slots[at]], number)
                break
            at = (at + np.uint64(1)) & mask
