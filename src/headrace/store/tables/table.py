"""The state of one slice in memory: rows by key, found through an open-addressing index.

Invariants: a key has one row; a row is dirty while its first stamp is the current epoch. Its second stamp
is its mark, by which clean rows are evicted (`cache.policy`). Row ids hold until `evict`.
Threads: one at a time, the partition's own; kernels run without the GIL.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.kernels.core import order
from headrace.kernels.core.bytes import USED
from headrace.kernels.tables import age
from headrace.kernels.tables import table as kernel
from headrace.row.arrays import U64, Flags, Ids
from headrace.row.chunks import KERNEL_ROWS
from headrace.row.layout import LENGTH_MAX, RowLayout
from headrace.row.run import Run
from headrace.store.rows import size
from headrace.store.tables.rows import Rows

_AGES = 4096
_MARK_BITS = (1 << 32) - 1
_AGE_BITS = 11  # of a distance between marks: half of the ages are never short


class Table(Rows):
    """Find, insert, fold and hand out rows of one layout."""

    crowd = 8  # other keys of one hash that a probe passes before it goes on at another place

    def __init__(
        self, layout: RowLayout, capacity: int = size.CAPACITY_MIN, *, second_chance: bool = False
    ) -> None:
        capacity = max(capacity, size.CAPACITY_MIN)
        super().__init__(layout, capacity)
        self._stamps = np.zeros((capacity, 2), np.uint32)
        self._slots: U64 = np.zeros(size.slots_for(capacity), np.uint64)
        self._epoch = 1
        self._second_chance = second_chance
        self._mark: int | None = None  # of rows in use; None: the epoch
        self._newest = 0  # the largest mark that a row got

    @property
    def dirty_count(self) -> int:
        return int(self._counters[kernel.DIRTY])

    @property
    def nbytes(self) -> int:
        arrays = (self._rows, self._hashes, self._stamps, self._slots, self._heap)
        return sum(array.nbytes for array in arrays)

    def growth_bytes(self, n_rows: int, heap_bytes: int = 0) -> int:
        """Bytes by which a batch of `n_rows` new keys with `heap_bytes` of values can grow it at most."""
        capacity = size.grown_most(len(self._hashes), len(self) + n_rows)
        heap = size.heap_grown_most(len(self._heap), int(self._counters[USED]) + heap_bytes)
        return size.table_bytes(self.layout.width, capacity, heap) - self.nbytes

    def upsert(self, probe: Run) -> tuple[Ids, Ids]:
        """The row of each key, and the rows that were inserted; all of them are dirty now.

        The probe may be a run of whole rows.
        """
        n, at = len(probe), 0
        ids, fresh = np.empty(n, np.int64), np.empty(n, np.int64)
        self._counters[kernel.FRESH] = 0
        mark = self._marked(self._epoch if self._mark is None else self._mark)
        key_is_variable = self._is_variable[: self.layout.key_width]
        while True:
            arrays = (self._slots, self._rows, self._hashes, self._stamps, self._heap, self._counters)
            keys = (probe.order, probe.words, probe.heap, key_is_variable, self.crowd)
            at = kernel.upsert(*arrays, *keys, at, self._epoch, mark, self._second_chance, ids, fresh)
            if at == n:
                return ids, fresh[: self._counters[kernel.FRESH]].copy()
            if len(self) == len(self._hashes):
                self._resize(size.grown(len(self._hashes), len(self) + n - at))
            else:
                key = probe.words[at, list(self.layout.variable_key_words)]
                self._reserve_heap(int((key & np.uint64(LENGTH_MAX)).sum()))

    def use(self, mark: int) -> None:
        """The mark of the rows that `upsert` touches from now on."""
        self._mark = mark

    def expect(self, hashes: U64, mark: int | None) -> Flags:
        """Which hashes have a row here; with a mark, these rows are expected to be used then."""
        resident: Flags = np.zeros(len(hashes), np.bool_)
        moved = 0 if mark is None else self._marked(mark)
        kernel.expect(self._slots, self._hashes, self._stamps, hashes, moved, mark is not None, resident)
        return resident

    def _marked(self, mark: int) -> int:
        """The mark as rows have it; a second chance needs its lowest bit."""
        mark = mark << 1 if self._second_chance else mark
        self._newest = max(self._newest, mark)
        return mark & _MARK_BITS

    def absorb(self, run: Run) -> None:
        """Combine rows of this layout into the rows of their keys; new keys are inserted."""
        for start in range(0, len(run), KERNEL_ROWS):
            cut = slice(start, start + KERNEL_ROWS)
            part = Run(run.order[cut], run.words[cut], run.heap)
            self.combine(self.upsert(part)[0], part)

    def find(self, probe: Run) -> Ids:
        """The row of each key, or -1; the probe may be a run of whole rows."""
        ids = np.empty(len(probe), np.int64)
        key_is_variable = self._is_variable[: self.layout.key_width]
        keys = (probe.order, probe.words, probe.heap, key_is_variable, self.crowd)
        kernel.find(self._slots, self._rows, self._heap, *keys, ids)
        return ids

    def count_between(self, low: int, high: int) -> int:
        """How many rows have `low <= hash < high`; `high` may be 2**64."""
        return int(np.count_nonzero(self._inside(low, high)))

    def between(self, low: int, high: int, *, ordered: bool) -> Run:
        """Those rows: copies, but for all rows in no order."""
        if not ordered and low == 0 and high == 1 << 64:
            return self.view()
        ids = np.flatnonzero(self._inside(low, high))
        return self._ordered(ids) if ordered else self.rows_of(ids)

    def _inside(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        return (self.hashes >= np.uint64(low)) & (self.hashes <= np.uint64(high - 1))

    def dirty_run(self) -> Run:
        """The rows touched in this epoch, ordered."""
        return self._ordered(np.flatnonzero(self._stamps[: len(self), kernel.EPOCH] == self._epoch))

    def _ordered(self, ids: Ids) -> Run:
        return self.rows_of(ids[order.by_hash(self._hashes[ids])])

    def settle(self) -> None:
        """What was dirty is committed: a new epoch begins."""
        self._epoch += 1
        self._counters[kernel.DIRTY] = 0

    def evict(self, bytes_max: int, room_rows: int = 0, room_heap: int = 0) -> int:
        """Drop clean rows, the longest untouched first, until `nbytes` fits; how many were dropped.

        Dirty rows stay even if they do not fit. With room given, `bytes_max` includes space for that many
        more rows and heap bytes, which `upsert` then takes without growing.
        """
        if self.nbytes <= bytes_max and self.growth_bytes(room_rows, room_heap) == 0:
            return 0
        before = len(self)
        self._keep(self._survivors(bytes_max, room_rows, room_heap), room_rows, room_heap)
        return before - len(self)

    def _survivors(self, bytes_max: int, room_rows: int, room_heap: int) -> Ids:
        limit = size.Limit(self.layout.width, bytes_max, room_rows, room_heap)
        ages, shift = self._ages()
        oldest = self._oldest_kept(limit, ages)
        if self._second_chance and oldest[0] <= 1:
            age.clear_used(self._stamps, len(self))
            ages, shift = self._ages()
            oldest = self._oldest_kept(limit, ages)
        elif self._second_chance:
            age.queue_anew(self._stamps, len(self), self._newest & _MARK_BITS, shift, oldest[0])
        kept: Ids = age.survivors(self._rows, ages, self._variable, *oldest)
        return kept

    def _ages(self) -> tuple[age.Ages, int]:
        """The age of each row, and by how many bits the distances of marks were shortened for it."""
        marks = (self._stamps, len(self), self._epoch, self._newest & _MARK_BITS, self._second_chance)
        shift = max(0, int(age.span(*marks)).bit_length() - _AGE_BITS)
        ages: age.Ages = np.empty(len(self), np.uint16)
        age.ages_of(*marks, shift, ages)
        return ages, shift

    def _oldest_kept(self, limit: size.Limit, ages: age.Ages) -> tuple[int, int, int]:
        rows_of_age, bytes_of_age = np.zeros(_AGES, np.int64), np.zeros(_AGES, np.int64)
        age.histogram(self._rows, ages, self._variable, rows_of_age, bytes_of_age)
        return size.oldest_kept(limit, rows_of_age, bytes_of_age)

    def _keep(self, ids: Ids, room_rows: int, room_heap: int) -> None:
        order.squeeze(self._rows, self._hashes, self._stamps, ids)
        self._counters[kernel.COUNT] = len(ids)
        capacity = max(len(ids) + room_rows, size.CAPACITY_MIN)
        self._rows[len(ids) :] = 0
        self._stamps[len(ids) :] = 0
        self._slots = np.zeros(0, np.uint64)
        self._resize(capacity)
        self._repack_heap(room_heap)

    def _resize(self, capacity: int) -> None:
        """Give the arrays another capacity, in place where the allocator can; new rows are zero."""
        self._rows.resize((capacity, self.layout.width), refcheck=False)
        self._hashes.resize(capacity, refcheck=False)
        self._stamps.resize((capacity, 2), refcheck=False)
        slots = size.slots_for(capacity)
        if slots != len(self._slots):
            self._slots = np.zeros(0, np.uint64)  # the old ones go first: hashes rebuild them
            self._slots = np.zeros(slots, np.uint64)
            key_is_variable = self._is_variable[: self.layout.key_width]
            kernel.reindex(
                self._slots, self._hashes, self._rows, self._heap, key_is_variable, self.crowd, len(self)
            )
