"""How large a table's arrays are and how they grow: pure arithmetic.

A table of capacity c takes c rows with hash and two stamps, a power of two of index slots that c rows fill
to at most six tenths, and its heap. It grows by an eighth at least, by half at most, and hardly beyond what
the batch at hand may need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CAPACITY_MIN = 16

_HEAP_STEP = 1024


def slots_for(capacity: int) -> int:
    """Index slots for so many rows."""
    return 1 << (capacity * 5 // 3).bit_length()


def table_bytes(width: int, capacity: int, heap: int) -> int:
    """Bytes of all arrays: rows, hash and stamps of each, index slots, heap."""
    return capacity * (8 * width + 8 + 8) + 8 * slots_for(capacity) + heap


def grown(capacity: int, wanted: int) -> int:
    """The next capacity of a full table that may need `wanted` rows in all."""
    return max(capacity + capacity // 8 + CAPACITY_MIN, min(wanted, capacity + capacity // 2))


def grown_most(capacity: int, wanted: int) -> int:
    """What `grown` leads to at most while there are no more than `wanted` rows."""
    return capacity if wanted <= capacity else wanted + wanted // 8 + CAPACITY_MIN


def heap_grown(size: int, needed: int) -> int:
    return max(needed, size + size // 4 + _HEAP_STEP)


def heap_grown_most(size: int, needed: int) -> int:
    return size if needed <= size else needed + needed // 4 + _HEAP_STEP


@dataclass(frozen=True)
class Limit:
    """Bytes that a table of `width` may take, room for more rows and heap bytes included."""

    width: int
    bytes_max: int
    room_rows: int
    room_heap: int

    def left(self, rows: int, heap: int) -> int:
        """Bytes left when it keeps so many rows and heap bytes."""
        capacity = max(rows + self.room_rows, CAPACITY_MIN)
        return self.bytes_max - table_bytes(self.width, capacity, heap + self.room_heap)


def oldest_kept(
    limit: Limit, rows_of_age: npt.NDArray[np.int64], bytes_of_age: npt.NDArray[np.int64]
) -> tuple[int, int, int]:
    """The oldest age of which rows stay, and how many of that age: rows and heap bytes at most."""
    rows, heap = int(rows_of_age[0]), int(bytes_of_age[0])
    for age in range(1, len(rows_of_age)):
        more, more_heap = int(rows_of_age[age]), int(bytes_of_age[age])
        if limit.left(rows + more, heap + more_heap) < 0:
            fit = _rows_that_fit(limit, rows, heap, more, more_heap)
            return age, fit, max(0, limit.left(rows + fit, heap))
        rows, heap = rows + more, heap + more_heap
    return len(rows_of_age) - 1, int(rows_of_age[-1]), int(bytes_of_age[-1])


def _rows_that_fit(limit: Limit, rows: int, heap: int, more: int, more_heap: int) -> int:
    """How many of `more` rows of equal heap share fit, by bisection."""
    low, high = 0, more
    while low < high:
        middle = (low + high + 1) // 2
        if limit.left(rows + middle, heap + more_heap * middle // more) >= 0:
            low = middle
        else:
            high = middle - 1
    return low
