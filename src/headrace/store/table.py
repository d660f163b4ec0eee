"""The state of one slice in memory: rows by key, found through an open-addressing index.

Invariants: a key has one row; rows `[0, len)` are in use, words beyond them are zero; a row is dirty while
its stamp is the current epoch; a heap value belongs to one row. Row ids hold until `evict`.
Threads: one at a time, the partition's own; kernels run without the GIL.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.kernels import age, order
from headrace.kernels import combine as combine_kernel
from headrace.kernels import table as kernel
from headrace.kernels.bytes import GARBAGE, USED
from headrace.spec import TIME
from headrace.store import size
from headrace.store.arrow import Column, column_of, valid_of
from headrace.store.fold import Arena, Fold, combine_plan
from headrace.store.layout import LENGTH_MAX, RowLayout
from headrace.store.run import U8, U64, Run

Ids = npt.NDArray[np.int64]

_AGES = 4096
_CHUNK_ROWS = 8192  # the rows that a chunk touches stay in the cache from one accumulator to the next
_GARBAGE_MIN = 4096  # a heap this small is not worth compacting
_NOTHING = Column(np.zeros((0, 1), np.uint64), np.zeros(0, np.uint8), np.zeros(0, np.bool_))


class Table:
    """Find, insert, fold and hand out rows of one layout."""

    def __init__(self, layout: RowLayout, capacity: int = size.CAPACITY_MIN) -> None:
        self.layout = layout
        capacity = max(capacity, size.CAPACITY_MIN)
        self._rows: U64 = np.zeros((capacity, layout.width), np.uint64)
        self._hashes: U64 = np.zeros(capacity, np.uint64)
        self._stamps = np.zeros(capacity, np.uint32)
        self._slots: U64 = np.zeros(size.slots_for(capacity), np.uint64)
        self._heap: U8 = np.zeros(0, np.uint8)
        self._counters: Ids = np.zeros(6, np.int64)
        self._epoch = 1
        self._variable: Ids = np.array(layout.variable_words, np.int64)
        self._is_variable = np.zeros(layout.width, np.bool_)
        self._is_variable[self._variable] = True
        self._folds = [Fold.of(layout, slot) for slot in layout.accumulators]
        self._plan = combine_plan(self._folds)

    def __len__(self) -> int:
        return int(self._counters[kernel.COUNT])

    @property
    def dirty_count(self) -> int:
        return int(self._counters[kernel.DIRTY])

    @property
    def hashes(self) -> U64:
        """The hash of each row; valid until the table changes."""
        return self._hashes[: len(self)]

    @property
    def nbytes(self) -> int:
        arrays = (self._rows, self._hashes, self._stamps, self._slots, self._heap)
        return sum(array.nbytes for array in arrays)

    @property
    def heap_bytes(self) -> int:
        """Bytes of its values that are not in its rows."""
        return int(self._counters[USED])

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
        key_is_variable = self._is_variable[: self.layout.key_width]
        while True:
            arrays = (self._slots, self._rows, self._hashes, self._stamps, self._heap, self._counters)
            asked = (probe.hashes, probe.words, probe.heap, key_is_variable)
            at = kernel.upsert(*arrays, *asked, at, self._epoch, ids, fresh)
            if at == n:
                return ids, fresh[: self._counters[kernel.FRESH]].copy()
            if len(self) == len(self._hashes):
                self._resize(size.grown(len(self._hashes), len(self) + n - at))
            else:
                key = probe.words[at, list(self.layout.variable_key_words)]
                self._reserve_heap(int((key & np.uint64(LENGTH_MAX)).sum()))

    def fill(self, row_ids: Ids, words: U64, heap: U8) -> None:
        """Overwrite the accumulators of rows with loaded ones (whole rows of the layout and their heap)."""
        start = self.layout.key_width
        held = self._variable[self._variable >= start]
        self._reserve_heap(int(order.held_bytes(words, len(words), held)))
        to = (self._rows, self._heap, self._counters, row_ids)
        kernel.fill(*to, words, heap, start, self._is_variable)
        self._tidy_heap()

    def accumulate(self, row_ids: Ids, batch: pa.RecordBatch) -> None:
        """Fold a batch into the rows that `upsert` gave for it."""
        columns = _columns(self._folds, batch)
        times = column_of(batch.column(TIME), "timestamp") if self.layout.spec.timed else _NOTHING
        for start in range(0, len(row_ids), _CHUNK_ROWS):
            cut = slice(start, start + _CHUNK_ROWS)
            ids, at = row_ids[cut], _cut(times, cut)
            for fold, column in zip(self._folds, columns, strict=True):
                part = _cut(column, cut)
                self._reserve_heap(fold.heap_bytes(part))
                fold.run(Arena(self._rows, self._heap, self._counters), ids, part, at)
        self._tidy_heap()

    def combine(self, row_ids: Ids, run: Run) -> None:
        """Fold whole rows of this layout into rows, in their order; a row may be named more than once."""
        held = self._variable[self._variable >= self.layout.key_width]
        for start in range(0, len(row_ids), _CHUNK_ROWS):
            words, ids = run.words[start : start + _CHUNK_ROWS], row_ids[start : start + _CHUNK_ROWS]
            self._reserve_heap(int(order.held_bytes(words, len(words), held)))
            arena = (self._rows, self._heap, self._counters)
            lost = combine_kernel.combine(*arena, ids, words, run.heap, self._plan)
            if lost >= 0:
                raise self._folds[lost].overflowed()
            self._tidy_heap()

    def absorb(self, run: Run) -> None:
        """Combine rows of this layout into the rows of their keys; new keys are inserted."""
        for start in range(0, len(run), _CHUNK_ROWS):
            cut = slice(start, start + _CHUNK_ROWS)
            part = Run(run.hashes[cut], run.words[cut], run.heap)
            self.combine(self.upsert(part)[0], part)

    def find(self, probe: Run) -> Ids:
        """The row of each key, or -1; the probe may be a run of whole rows."""
        ids = np.empty(len(probe), np.int64)
        asked = (probe.hashes, probe.words, probe.heap, self._is_variable[: self.layout.key_width])
        kernel.find(self._slots, self._rows, self._heap, *asked, ids)
        return ids

    def view(self) -> Run:
        """All rows in no order, without a copy: valid until the table changes."""
        return Run(self.hashes, self._rows[: len(self)], self._heap)

    def count_between(self, low: int, high: int) -> int:
        """How many rows have `low <= hash < high`; `high` may be 2**64."""
        return int(np.count_nonzero(self._inside(low, high)))

    def between(self, low: int, high: int, *, ordered: bool) -> Run:
        """Those rows: copies, but for all rows in no order."""
        if not ordered and low == 0 and high == 1 << 64:
            return self.view()
        ids = np.flatnonzero(self._inside(low, high))
        return self._run(ids) if ordered else self.rows_of(ids)

    def _inside(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        return (self.hashes >= np.uint64(low)) & (self.hashes <= np.uint64(high - 1))

    def rows_of(self, row_ids: Ids) -> Run:
        """Copies of these rows."""
        return self._copy(row_ids, self.layout.width)

    def keys_of(self, row_ids: Ids) -> Run:
        """The keys of these rows as a probe."""
        return self._copy(row_ids, self.layout.key_width)

    def dirty_run(self) -> Run:
        """The rows touched in this epoch, ordered."""
        return self._run(np.flatnonzero(self._stamps[: len(self)] == self._epoch))

    def whole_run(self) -> Run:
        """All rows, ordered."""
        return self._run(np.arange(len(self)))

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
        rows_of_age, bytes_of_age = np.zeros(_AGES, np.int64), np.zeros(_AGES, np.int64)
        rows = (self._rows, self._stamps, len(self), self._epoch, self._variable)
        age.histogram(*rows, rows_of_age, bytes_of_age)
        limit = size.Limit(self.layout.width, bytes_max, room_rows, room_heap)
        kept: Ids = age.survivors(*rows, _AGES, *size.oldest_kept(limit, rows_of_age, bytes_of_age))
        return kept

    def _keep(self, ids: Ids, room_rows: int, room_heap: int) -> None:
        order.squeeze(self._rows, self._hashes, self._stamps, ids)
        self._counters[kernel.COUNT] = len(ids)
        capacity = max(len(ids) + room_rows, size.CAPACITY_MIN)
        self._rows[len(ids) :] = 0
        self._stamps[len(ids) :] = 0
        self._slots = np.zeros(0, np.uint64)
        self._resize(capacity)
        self._repack_heap(room_heap)

    def _run(self, ids: Ids) -> Run:
        return self._copy(ids[order.by_hash(self._hashes[ids])], self.layout.width)

    def _copy(self, ids: Ids, width: int) -> Run:
        """The first `width` words of these rows, with a heap of their own."""
        words = np.empty((len(ids), width), np.uint64)
        order.take(self._rows, ids, words)
        variable = self._variable[self._variable < width]
        heap = np.empty(order.held_bytes(words, len(words), variable), np.uint8)
        order.repack(words, len(words), variable, self._heap, heap)
        return Run(self._hashes[ids], words, heap)

    def _resize(self, capacity: int) -> None:
        """Give the arrays another capacity, in place where the allocator can; new rows are zero."""
        self._rows.resize((capacity, self.layout.width), refcheck=False)
        self._hashes.resize(capacity, refcheck=False)
        self._stamps.resize(capacity, refcheck=False)
        slots = size.slots_for(capacity)
        if slots != len(self._slots):
            self._slots = np.zeros(0, np.uint64)  # the old ones go first: hashes rebuild them
            self._slots = np.zeros(slots, np.uint64)
            kernel.reindex(self._slots, self._hashes, len(self))

    def _reserve_heap(self, extra: int) -> None:
        needed = int(self._counters[USED]) + extra
        if needed > len(self._heap):
            self._heap.resize(size.heap_grown(len(self._heap), needed), refcheck=False)

    def _tidy_heap(self) -> None:
        used, garbage = int(self._counters[USED]), int(self._counters[GARBAGE])
        if used > _GARBAGE_MIN and garbage > used // 2:
            self._repack_heap(0)

    def _repack_heap(self, room: int) -> None:
        """A heap without garbage, and with room for that many more bytes."""
        live = int(order.held_bytes(self._rows, len(self), self._variable))
        heap = np.zeros(live + room, np.uint8)
        order.repack(self._rows, len(self), self._variable, self._heap, heap)
        self._heap = heap
        self._counters[USED], self._counters[GARBAGE] = live, 0


def _columns(folds: list[Fold], batch: pa.RecordBatch) -> list[Column]:
    """The column of each fold; a column that several read is converted once."""
    ready: dict[tuple[str, str], Column] = {}
    columns = []
    for fold in folds:
        name = fold.column
        if name is None:
            columns.append(_NOTHING)
            continue
        array = batch.column(name)
        if fold.accumulator.kind == "count" and not fold.weighted:
            columns.append(Column(_NOTHING.words, _NOTHING.heap, valid_of(array)))
            continue
        key = (name, fold.column_type)
        if key not in ready:
            ready[key] = column_of(array, fold.column_type)
        columns.append(ready[key])
    return columns


def _cut(column: Column, cut: slice) -> Column:
    return Column(column.words[cut], column.heap, column.valid[cut])
