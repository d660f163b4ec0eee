"""Rows of a batch as stretches: rows of one key that are in one session whatever is stored."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from headrace.kernels.core.signature import I64, IDS, IDS_IN
from headrace.row.arrays import Ids

_FIVE = types.Tuple((IDS, IDS, IDS, IDS, IDS))


@njit([_FIVE(IDS_IN, IDS_IN, IDS_IN, IDS_IN, I64)], nogil=True, cache=True)
def stretches_of(
    order: Ids, groups: Ids, times: Ids, ends: Ids, gap: int
) -> tuple[Ids, Ids, Ids, Ids, Ids]:
    """The stretch of each row; the group, first time, last end and number of rows of each stretch.

    `order` sorts the rows by group, then by time. A stretch ends where the next row of its group comes more
    than `gap` after the latest end so far.
    """
    n = len(order)
    of_row = np.empty(n, np.int64)
    of, begin, end, count = (
        np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64),
    )  # fmt: skip
    at = -1
    for i in range(n):
        row = order[i]
        if at < 0 or groups[row] != of[at] or times[row] - end[at] > gap:
            at += 1
            of[at], begin[at], end[at], count[at] = groups[row], times[row], ends[row], 0
        else:
            end[at] = max(end[at], ends[row])
        count[at] += 1
        of_row[row] = at
    at += 1
    return of_row, of[:at].copy(), begin[:at].copy(), end[:at].copy(), count[:at].copy()
