"""Rows of one layout and the heap that their variable words point into: folded, combined, copied.

Invariants: rows `[0, len)` are in use, words beyond them are zero; a heap value belongs to one row.
Threads: one at a time; kernels run without the GIL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.kernels.core import order
from headrace.kernels.core.bytes import GARBAGE, USED
from headrace.kernels.tables import combine as combine_kernel
from headrace.kernels.tables import table as kernel
from headrace.plan.spec import TIME, OperatorSpec
from headrace.row.arrays import U8, U64, Ids
from headrace.row.chunks import KERNEL_ROWS
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.rows import size
from headrace.store.rows.arrow import Column, column_of, valid_of
from headrace.store.rows.order_words import order_column
from headrace.store.tables.fold import Arena, Fold, combine_plan

_GARBAGE_MIN = 4096  # a heap this small is not worth compacting
_NOTHING = Column(np.zeros((0, 1), np.uint64), np.zeros(0, np.uint8), np.zeros(0, np.bool_))


class Rows:
    """Rows that are known by their number; `hashes` are those of their keys."""

    def __init__(self, layout: RowLayout, capacity: int) -> None:
        self.layout = layout
        self._rows: U64 = np.zeros((capacity, layout.width), np.uint64)
        self._hashes: U64 = np.zeros(capacity, np.uint64)
        self._heap: U8 = np.zeros(0, np.uint8)
        self._counters: Ids = np.zeros(6, np.int64)
        self._variable: Ids = np.array(layout.variable_words, np.int64)
        self._is_variable = np.zeros(layout.width, np.bool_)
        self._is_variable[self._variable] = True
        self._folds = [Fold.of(layout, slot) for slot in layout.accumulators]
        self._plan = combine_plan(self._folds)

    def __len__(self) -> int:
        return int(self._counters[kernel.COUNT])

    @property
    def hashes(self) -> U64:
        """The hash of each row; valid until a row is added."""
        return self._hashes[: len(self)]

    @property
    def heap_bytes(self) -> int:
        """Bytes of its values that are not in its rows."""
        return int(self._counters[USED])

    def fill(self, row_ids: Ids, words: U64, heap: U8) -> None:
        """Overwrite the accumulators of rows with loaded ones (whole rows of the layout and their heap)."""
        start = self.layout.key_width
        heap_words = self._variable[self._variable >= start]
        self._reserve_heap(int(order.held_bytes(words, len(words), heap_words)))
        to = (self._rows, self._heap, self._counters, row_ids)
        kernel.fill(*to, words, heap, start, self._is_variable)
        self._tidy_heap()

    def accumulate(self, row_ids: Ids, batch: pa.RecordBatch) -> None:
        """Fold a batch into the rows that `upsert` gave for it."""
        columns = _columns(self._folds, batch)
        orders = _orders(self._folds, batch, self.layout.spec)
        for start in range(0, len(row_ids), KERNEL_ROWS):
            cut = slice(start, start + KERNEL_ROWS)
            ids = row_ids[cut]
            for fold, column, times in zip(self._folds, columns, orders, strict=True):
                part = _cut(column, cut)
                self._reserve_heap(fold.heap_bytes(part))
                fold.run(Arena(self._rows, self._heap, self._counters), ids, part, _cut(times, cut))
        self._tidy_heap()

    def combine(self, row_ids: Ids, run: Run) -> None:
        """Fold whole rows of this layout into rows, in their order; a row may be named more than once."""
        heap_words = self._variable[self._variable >= self.layout.key_width]
        for start in range(0, len(row_ids), KERNEL_ROWS):
            words, ids = run.words[start : start + KERNEL_ROWS], row_ids[start : start + KERNEL_ROWS]
            self._reserve_heap(int(order.held_bytes(words, len(words), heap_words)))
            arena = (self._rows, self._heap, self._counters)
            lost = combine_kernel.combine(*arena, ids, words, run.heap, self._plan)
            if lost >= 0:
                raise self._folds[lost].overflowed()
            self._tidy_heap()

    def view(self) -> Run:
        """All rows in no order, without a copy: valid until a row changes."""
        return Run(self.hashes, self._rows[: len(self)], self._heap)

    def rows_of(self, row_ids: Ids) -> Run:
        """Copies of these rows."""
        return self._copy(row_ids, self.layout.width)

    def keys_of(self, row_ids: Ids) -> Run:
        """The keys of these rows as a probe."""
        return self._copy(row_ids, self.layout.key_width)

    def whole_run(self) -> Run:
        """All rows, ordered."""
        return self._copy(order.by_hash(self.hashes), self.layout.width)

    def _copy(self, ids: Ids, width: int) -> Run:
        """The first `width` words of these rows, with a heap of their own."""
        words = np.empty((len(ids), width), np.uint64)
        order.take(self._rows, ids, words)
        variable = self._variable[self._variable < width]
        heap = np.empty(order.held_bytes(words, len(words), variable), np.uint8)
        order.repack(words, len(words), variable, self._heap, heap)
        return Run(self._hashes[ids], words, heap)

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


def _orders(folds: list[Fold], batch: pa.RecordBatch, spec: OperatorSpec) -> list[Column]:
    """What each fold of first and last orders by: the event time, or words of another input."""
    ready: dict[str | None, Column] = {None: _NOTHING}
    if spec.timed:
        ready[None] = column_of(batch.column(TIME), "timestamp")
    types = {field.name: field.type for field in spec.inputs}
    for name in {fold.accumulator.by for fold in folds} - {None}:
        assert name is not None
        ready[name] = order_column(column_of(batch.column(name), types[name]), types[name])
    return [ready[fold.accumulator.by] for fold in folds]


def _cut(column: Column, cut: slice) -> Column:
    return Column(column.words[cut], column.heap, column.valid[cut])
