"""Eviction from a table: ages of rows by their marks, and the rows that stay.

A row has two stamps: the epoch in which it was last changed, and its mark (`cache.policy`). A row that was
changed in the running epoch is dirty, has age 0 and stays. The age of a clean row grows with the distance
of its mark from the newest one; distances are scaled so that the oldest row has one of the last ages.

With a second chance, the lowest bit of a mark is set if the row was used since it queued. Such a row is
as young as the newest one, until its bit is cleared.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from headrace.kernels.core import bytes as heap_bytes
from headrace.kernels.core.signature import FLAG, I64, IDS, IDS_IN, STAMPS, STAMPS_IN, WORDS_IN, Scalar
from headrace.kernels.tables.table import EPOCH, MARK
from headrace.row.arrays import U64, Ids, Stamps

_AGES = types.Array(types.uint16, 1, "C")
_AGES_IN = types.Array(types.uint16, 1, "C", readonly=True)
Ages = npt.NDArray[np.uint16]


@njit(nogil=True, cache=True)
def distance(mark: np.uint32, newest: np.uint32, chance: bool) -> Scalar:
    """How far a mark lies behind the newest; 0 for one before it, and for a row that was used since."""
    if chance:
        if mark & np.uint32(1):
            return np.uint32(0)
        behind = (newest >> np.uint32(1)) - (mark >> np.uint32(1))
    else:
        behind = newest - mark
    return np.uint32(0) if np.int32(behind) < 0 else np.uint32(behind)


@njit([I64(STAMPS_IN, I64, I64, I64, FLAG)], nogil=True, cache=True)
def span(stamps: Stamps, count: int, epoch: int, newest: int, chance: bool) -> Scalar:
    """The largest distance of a clean row."""
    widest = np.uint32(0)
    for row in range(count):
        if stamps[row, EPOCH] != np.uint32(epoch):
            widest = max(widest, distance(stamps[row, MARK], np.uint32(newest), chance))
    return np.int64(widest)


@njit([(STAMPS_IN, I64, I64, I64, FLAG, I64, _AGES)], nogil=True, cache=True)
def ages_of(
    stamps: Stamps, count: int, epoch: int, newest: int, chance: bool, shift: int, ages: Ages
) -> None:
    """The age of each row: 0 where it is dirty, from 1 on otherwise."""
    for row in range(count):
        if stamps[row, EPOCH] == np.uint32(epoch):
            ages[row] = 0
        else:
            behind = distance(stamps[row, MARK], np.uint32(newest), chance)
            ages[row] = np.uint16(1 + (np.int64(behind) >> shift))


@njit(nogil=True, cache=True)
def bytes_of(rows: U64, row: int, variable: Ids) -> int:
    size = 0
    for v in range(len(variable)):
        size += heap_bytes.length(rows[row, variable[v]])
    return size


@njit([(WORDS_IN, _AGES_IN, IDS_IN, IDS, IDS)], nogil=True, cache=True)
def histogram(rows: U64, ages: Ages, variable: Ids, rows_of_age: Ids, bytes_of_age: Ids) -> None:
    """Rows and heap bytes of each age."""
    for row in range(len(ages)):
        rows_of_age[ages[row]] += 1
        bytes_of_age[ages[row]] += bytes_of(rows, row, variable)


@njit([IDS(WORDS_IN, _AGES_IN, IDS_IN, I64, I64, I64)], nogil=True, cache=True)
def survivors(rows: U64, ages: Ages, variable: Ids, oldest: int, rows_max: int, bytes_max: int) -> Ids:
    """The rows younger than `oldest`, and as many of that age as the two limits allow; ascending."""
    kept = 0
    chosen = np.empty(len(ages), np.int64)
    for row in range(len(ages)):
        if ages[row] > oldest:
            continue
        if ages[row] == oldest and oldest > 0:
            size = bytes_of(rows, row, variable)
            if rows_max == 0 or size > bytes_max:
                continue
            rows_max -= 1
            bytes_max -= size
        chosen[kept] = row
        kept += 1
    return chosen[:kept].copy()


@njit([(STAMPS, I64, I64, I64, I64)], nogil=True, cache=True)
def queue_anew(stamps: Stamps, count: int, newest: int, shift: int, oldest: int) -> None:
    """Ends the second chance of the rows that a sweep up to the age `oldest` has passed."""
    one = np.uint32(1)
    for row in range(count):
        mark = stamps[row, MARK]
        if mark & one:
            behind = distance(mark & ~one, np.uint32(newest), True)
            if 1 + (np.int64(behind) >> shift) >= oldest:
                stamps[row, MARK] = np.uint32(newest) & ~one


@njit([(STAMPS, I64)], nogil=True, cache=True)
def clear_used(stamps: Stamps, count: int) -> None:
    """Takes the second chance from all rows."""
    for row in range(count):
        stamps[row, MARK] &= ~np.uint32(1)
