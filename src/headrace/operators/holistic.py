"""Holistic results of whole groups: percentiles, mode, top, lists and sets, beside plain accumulators.

Pure computation over one chunk of kept rows, shared by all stores. Nulls never count, as in Spark. Results
do not depend on the order of arrival. Of several modes the smallest value is the mode. Lists go by event
time, then by value; sets go by value, equal tops by event time and value. An approximate percentile is the
exact value at its rank, which is within any accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.operators.holistic_order import Sorted, Values, distinct, sort_groups
from headrace.plan.spec import Field, Fold, Holistic, HolisticResult, OperatorSpec, output_schema
from headrace.plan.types import FLOATING, words
from headrace.row.arrays import I64, U64, Flags
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.rows.arrow import array_of, results_of
from headrace.store.rows.groups import Groups, key_columns
from headrace.store.rows.kept_layout import InputSlot, KeptLayout, rows_of, time_key, times_in
from headrace.store.tables.table import Table

_GROUP = "g"


class HolisticComputation:
    """What a chunk of whole groups comes to; a `Computation`."""

    def __init__(self, layout: KeptLayout) -> None:
        assert isinstance(layout.spec.work, Holistic)
        self._layout, self._spec, self._work = layout, layout.spec, layout.spec.work
        self._scratch = RowLayout(scratch_of(layout.spec))

    def __call__(self, rows: Run, groups: Groups) -> Iterator[pa.RecordBatch]:
        if not len(groups):
            return
        columns = key_columns(self._layout, rows, groups)
        columns += self._accumulated(rows, groups)
        chunk = _Chunk(self._layout, rows, groups)
        columns += [chunk.result(holistic) for holistic in self._work.results]
        yield pa.RecordBatch.from_arrays(columns, schema=output_schema(self._spec))

    def _accumulated(self, rows: Run, groups: Groups) -> list[pa.Array]:
        """The accumulators of each group, folded from its rows in a table of its own."""
        if not self._work.accumulators:
            return []
        numbers = np.arange(len(groups), dtype=np.uint64)
        keys = np.zeros((len(groups), self._scratch.key_width), np.uint64)
        keys[:, -1] = numbers
        table = Table(self._scratch, len(groups))
        table.upsert(Run(numbers, keys, np.empty(0, np.uint8)))  # row g of the table is group g
        table.accumulate(groups.of_row, rows_of(self._layout, rows))
        done = pa.Table.from_batches(results_of(self._scratch, table.whole_run(), None, len(groups)))
        return [column.combine_chunks() for column in done.columns[1:]]


def scratch_of(spec: OperatorSpec) -> OperatorSpec:
    """The accumulators of an operator, keyed by the number of a group."""
    return replace(spec, keys=(Field(_GROUP, "int64"),), window=None, work=Fold(spec.work.accumulators))


class _Chunk:
    """One chunk of rows; what several results need is computed once."""

    def __init__(self, layout: KeptLayout, rows: Run, groups: Groups) -> None:
        self._layout, self._rows, self._groups = layout, rows, groups
        self._values: dict[str, Values] = {}
        self._sorted: dict[str, Sorted] = {}

    def result(self, holistic: HolisticResult) -> pa.Array:
        """The result of each group."""
        values = self._of(holistic.input)
        match holistic.kind:
            case "percentile":
                return self._percentile(holistic, values)
            case "approx_percentile":
                return self._ranked(holistic, values)
            case "mode":
                return self._mode(values)
            case "set":
                order = self._by_value(values)
                return self._listed(values.slot, order.where(distinct(order, values.keys)), normal=True)
            case "list":
                order = sort_groups(self._groups, [values.keys, self._times()], values.valid)
                return self._listed(values.slot, order)
            case "top":
                return self._top(holistic, values)

    def _of(self, name: str) -> Values:
        if name not in self._values:
            self._values[name] = Values.of(self._layout.input(name), self._rows)
        return self._values[name]

    def _by_value(self, values: Values) -> Sorted:
        name = values.slot.field.name
        if name not in self._sorted:
            self._sorted[name] = sort_groups(self._groups, [values.keys], values.valid)
        return self._sorted[name]

    # ── one value per group ──────────────────────────────────────────────────────────────────

    def _percentile(self, holistic: HolisticResult, values: Values) -> pa.Array:
        """Spark's: between the two nearest ranks, in proportion."""
        order = self._by_value(values)
        numbers = np.ascontiguousarray(self._rows.words[order.rows, values.slot.word]).view(np.float64)
        parts = [interpolated(numbers, order.offsets, share) for share in holistic.numbers]
        empty = order.counts == 0
        if not holistic.many:
            return pa.array(parts[0], mask=empty)
        return _lists(pa.array(np.column_stack(parts).reshape(-1)), len(parts), empty)

    def _ranked(self, holistic: HolisticResult, values: Values) -> pa.Array:
        """The value at rank ceil(share * n) of each share; the accuracy comes last and is met."""
        order, shares = self._by_value(values), np.array(holistic.numbers[:-1])
        empty = order.counts == 0
        ranks = np.ceil(order.counts[:, None] * shares).astype(np.int64)
        at = order.offsets[:-1, None] + np.clip(ranks, 1, np.maximum(order.counts, 1)[:, None]) - 1
        rows = np.zeros(at.shape, np.int64)
        rows[~empty] = order.rows[at[~empty]]
        picked = self._picked(values.slot, rows.reshape(-1), np.repeat(~empty, len(shares)))
        return _lists(picked, len(shares), empty) if holistic.many else picked

    def _mode(self, values: Values) -> pa.Array:
        """The most frequent value, the smallest of several."""
        order = self._by_value(values)
        rows, has = np.zeros(len(self._groups), np.int64), order.counts > 0
        begins = np.flatnonzero(distinct(order, values.keys))
        if len(begins):
            often = np.diff(np.append(begins, len(order.rows)))
            groups = order.groups[begins]
            most = np.zeros(len(self._groups), np.int64)
            np.maximum.at(most, groups, often)
            best = np.flatnonzero(often == most[groups])[::-1]
            rows[groups[best]] = order.rows[begins[best]]  # reversed: the smallest is written last
        return self._picked(values.slot, rows, has, normal=True)

    # ── lists ────────────────────────────────────────────────────────────────────────────────

    def _top(self, holistic: HolisticResult, values: Values) -> pa.Array:
        """The k largest by value, or by another input, then by event time and value; and their equals."""
        by, k = self._of(holistic.by or holistic.input), int(holistic.numbers[0])
        keys = [~values.keys]
        if holistic.by is not None:
            keys += [(~values.valid).astype(np.uint64), ~self._times(), ~by.keys]
        order = sort_groups(self._groups, keys, self._largest(by, k))
        groups = order.groups
        among = np.arange(len(order.rows)) - order.offsets[:-1][groups] < k
        if holistic.ties:
            last = np.minimum(order.offsets[:-1] + k, order.offsets[1:])[groups] - 1
            among |= by.keys[order.rows] == by.keys[order.rows[last]]
        return self._listed(values.slot, order.where(among))

    def _largest(self, by: Values, k: int) -> Flags:
        """The rows with the k largest values of their group, and their equals: few, of many."""
        order = self._by_value(by)
        has, least = order.counts > 0, np.zeros(len(self._groups), np.uint64)
        at = np.maximum(order.offsets[1:] - k, order.offsets[:-1])[has]
        least[has] = by.keys[order.rows[at]]
        return by.valid & (by.keys >= least[self._groups.of_row])

    def _times(self) -> U64:
        """Event times as order keys."""
        return time_key(times_in(self._layout, self._rows).view(np.uint64))

    def _listed(self, slot: InputSlot, order: Sorted, normal: bool = False) -> pa.Array:
        picked = self._picked(slot, order.rows, None, normal)
        return pa.ListArray.from_arrays(pa.array(order.offsets, pa.int32()), picked)

    def _picked(self, slot: InputSlot, rows: I64, valid: Flags | None, normal: bool = False) -> pa.Array:
        """The values of these rows; null where they are, and where not `valid`."""
        kind, end = slot.field.type, slot.word + words(slot.field.type)
        values = np.ascontiguousarray(self._rows.words[rows, slot.word : end])
        present = self._of(slot.field.name).valid[rows]
        if valid is not None:
            present &= valid
            values[~valid] = 0
        array = array_of(kind, values, 0, self._rows.heap, present)
        return _without_negative_zero(array) if normal and kind in FLOATING else array


def interpolated(numbers: npt.NDArray[np.float64], offsets: I64, share: float) -> npt.NDArray[np.float64]:
    """The percentile of each group of sorted numbers, by Spark's formula; zero for empty groups."""
    counts = np.diff(offsets)
    has = counts > 0
    position = (counts[has] - 1) * share
    lower, higher = np.floor(position), np.ceil(position)
    low = numbers[offsets[:-1][has] + lower.astype(np.int64)]
    high = numbers[offsets[:-1][has] + higher.astype(np.int64)]
    with np.errstate(invalid="ignore"):
        between = low + (high - low) * (position - lower)  # in Spark's order of operations
    result = np.zeros(len(counts))
    result[has] = np.where((lower == higher) | (low == high), low, between)
    return result


def _lists(flat: pa.Array, size: int, empty: Flags) -> pa.Array:
    """Lists of `size` values each, null where a group has none."""
    offsets = pa.array(np.arange(len(empty) + 1, dtype=np.int32) * np.int32(size))
    return pa.ListArray.from_arrays(offsets, flat, mask=pa.array(empty))


def _without_negative_zero(array: pa.Array) -> pa.Array:
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(numbers + numbers.dtype.type(0), array.type, mask=array.is_null().to_numpy(False))
