"""A run of state rows: the currency between tables, segments and merges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Run:
    """Rows with their hashes and the heap that their variable words point into.

    `hashes` are unsigned (Spark's signed xxhash64 reinterpreted). Where a run is said to be *ordered* it is
    sorted by unsigned hash; rows of equal hash but different keys stay next to each other in any order. No
    two rows of a run have equal keys. A *probe* is a run whose rows hold key words only, keys may repeat.
    In runs of kept rows keys repeat too, and `hashes` is any unsigned order key (`store.kept`).
    """

    hashes: U64  # [n]
    words: U64  # [n, width], C-contiguous
    heap: U8  # [bytes]

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.words.nbytes + self.heap.nbytes
