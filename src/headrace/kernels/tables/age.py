"""Eviction from a table: the rows that were touched longest ago are evicted first.

A row's age is the number of epochs since it was last touched; age 0 is dirty and stays. Ages beyond the
histogram count as its last.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headrace.kernels.core import bytes as heap_bytes
from headrace.kernels.core.signature import I64, IDS, IDS_IN, STAMPS_IN, WORDS_IN, Scalar
from headrace.rows.arrays import U64, Ids, Stamps


@njit(nogil=True, cache=True)
def age(stamp: np.uint32, epoch: int, ages: int) -> Scalar:
    return min(epoch - np.int64(stamp), ages - 1)


@njit(nogil=True, cache=True)
def bytes_of(rows: U64, row: int, variable: Ids) -> int:
    size = 0
    for v in range(len(variable)):
        size += heap_bytes.length(rows[row, variable[v]])
    return size


@njit([(WORDS_IN, STAMPS_IN, I64, I64, IDS_IN, IDS, IDS)], nogil=True, cache=True)
def histogram(
    rows: U64, stamps: Stamps, count: int, epoch: int, variable: Ids, rows_of_age: Ids, bytes_of_age: Ids
) -> None:
    """Rows and heap bytes of each age."""
    for row in range(count):
        row_age = age(stamps[row], epoch, len(rows_of_age))
        rows_of_age[row_age] += 1
        bytes_of_age[row_age] += bytes_of(rows, row, variable)


@njit([IDS(WORDS_IN, STAMPS_IN, I64, I64, IDS_IN, I64, I64, I64, I64)], nogil=True, cache=True)
def survivors(
    rows: U64,
    stamps: Stamps,
    count: int,
    epoch: int,
    variable: Ids,
    ages: int,
    oldest: int,
    rows_max: int,
    bytes_max: int,
) -> Ids:
    """The rows younger than `oldest`, and as many of that age as the two limits allow; ascending."""
    kept = 0
    chosen = np.empty(count, np.int64)
    for row in range(count):
        row_age = age(stamps[row], epoch, ages)
        if row_age > oldest:
            continue
        if row_age == oldest and row_age > 0:
            size = bytes_of(rows, row, variable)
            if rows_max == 0 or size > bytes_max:
                continue
            rows_max -= 1
            bytes_max -= size
        chosen[kept] = row
        kept += 1
    return chosen[:kept].copy()
