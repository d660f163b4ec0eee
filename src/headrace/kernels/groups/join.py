"""The pairs of a join, written in bounded pieces for any number of pairs per group.

A row is in one of four lanes of its group: left, right, and for each side the rows that match no other row
(see `plan/spec.py`, `ALONE`). Pairs are numbered through all groups: first left times right, then the rows
without a partner that an outer join keeps. A missing partner is -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types

from headrace.kernels.core.signature import FLAG, IDS, IDS_IN
from headrace.kernels.core.signature import I64 as INT
from headrace.row.arrays import I64

LANES = 4
SIDES_IN = types.Array(types.int8, 1, "C", readonly=True)


@njit([types.Tuple((IDS, IDS))(IDS_IN, SIDES_IN, INT)], nogil=True, cache=True)
def arrange(group_of: I64, sides: npt.NDArray[np.int8], groups: int) -> tuple[I64, I64]:
    """Rows by group and lane, and the start of each lane (lane l of group g at `LANES * g + l`)."""
    begins = np.zeros(LANES * groups + 1, np.int64)
    for row in range(group_of.size):
        begins[LANES * group_of[row] + sides[row] + 1] += 1
    for lane in range(LANES * groups):
        begins[lane + 1] += begins[lane]
    at = begins[:-1].copy()
    order = np.empty(group_of.size, np.int64)
    for row in range(group_of.size):
        lane = LANES * group_of[row] + sides[row]
        order[at[lane]] = row
        at[lane] += 1
    return order, begins


@njit(nogil=True, cache=True)
def _unmatched(begins: I64, lane: int, partners: int, keep: bool) -> int:
    """Rows of a lane that are emitted without a partner."""
    if not keep or partners:
        return 0
    rows: int = begins[lane + 1] - begins[lane]
    return rows


@njit([IDS(IDS_IN, FLAG, FLAG)], nogil=True, cache=True)
def count(begins: I64, keep_left: bool, keep_right: bool) -> I64:
    """The number of pairs before each group; the last entry is the total."""
    groups = begins.size // LANES
    before = np.zeros(groups + 1, np.int64)
    for group in range(groups):
        lane = LANES * group
        left, right = begins[lane + 1] - begins[lane], begins[lane + 2] - begins[lane + 1]
        pairs = left * right
        pairs += _unmatched(begins, lane, right, keep_left) + _unmatched(begins, lane + 1, left, keep_right)
        pairs += _unmatched(begins, lane + 2, 0, keep_left) + _unmatched(begins, lane + 3, 0, keep_right)
        before[group + 1] = before[group] + pairs
    return before


@njit(
    [types.void(IDS_IN, IDS_IN, IDS_IN, FLAG, FLAG, INT, IDS, IDS, IDS)],
    nogil=True,
    cache=True,
)
def write(
    order: I64,
    begins: I64,
    before: I64,
    keep_left: bool,
    keep_right: bool,
    start: int,
    lefts: I64,
    rights: I64,
    groups: I64,
) -> None:
    """The pairs from number `start` on, as many as fit the outputs: row of each side, and group."""
    group: Any = np.searchsorted(before, start, side="right") - 1
    for out in range(lefts.size):
        number = start + out
        while before[group + 1] <= number:
            group += 1
        lane = LANES * group
        left, right = begins[lane + 1] - begins[lane], begins[lane + 2] - begins[lane + 1]
        offset = number - before[group]
        lefts[out], rights[out], groups[out] = -1, -1, group
        if offset < left * right:
            lefts[out] = order[begins[lane] + offset // right]
            rights[out] = order[begins[lane + 1] + offset % right]
            continue
        offset -= left * right
        for of_lane in range(LANES):
            is_left = of_lane % 2 == 0
            partners = (right if is_left else left) if of_lane < 2 else 0
            rows = _unmatched(begins, lane + of_lane, partners, keep_left if is_left else keep_right)
            if offset < rows:
                row = order[begins[lane + of_lane] + offset]
                if is_left:
                    lefts[out] = row
                else:
                    rights[out] = row
                break
            offset -= rows
