"""A run: sorted rows in memory, the unit that tables, segments and merges exchange."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.row.arrays import U8, U64


@dataclass(frozen=True)
class Run:
    """Rows with their order keys and the heap of their variable words.

    `order` is the unsigned order key: the key's hash (Spark's signed xxhash64 reinterpreted), or the event
    time in runs that are sorted by time. An *ordered* run is sorted by it; rows of equal order stay
    adjacent. In runs of state rows no two rows have equal keys. A *probe* is a run of key words only, and
    its keys may repeat; so may the keys of kept rows.
    """

    order: U64  # [n]
    words: U64  # [n, width], C-contiguous
    heap: U8  # [bytes]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def nbytes(self) -> int:
        return self.order.nbytes + self.words.nbytes + self.heap.nbytes
