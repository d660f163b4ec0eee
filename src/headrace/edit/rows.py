"""Rows of a table as state rows: hashed as Spark does, laid out as the operator's store has them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.edit.schema import START, WriteSchema
from headrace.errors import QueryError
from headrace.operators.open import kinds_of
from headrace.plan.partitions.groups import GROUP_BITS
from headrace.plan.spec import ALONE, HASH, KEYLESS_HASH, SIDE, TIME, OperatorSpec, input_schema
from headrace.plan.types import arrow_type
from headrace.row.arrays import I64, U8, U64, Flags
from headrace.row.layout import LENGTH_BITS, AccumulatorSlot, RowLayout
from headrace.row.run import Run
from headrace.store.adaptive.migrate import layout_at
from headrace.store.append.buckets import bucket_of
from headrace.store.base.files import FileKind
from headrace.store.rows.arrow import column_of, probe_of
from headrace.store.rows.hashing import hashes_of, normalised
from headrace.store.rows.kept_layout import KeptLayout, by_time, pieces_of, times_in
from headrace.store.rows.slices import WHOLE, is_closed


@dataclass(frozen=True)
class StateRun:
    """State rows, and the partition and section that each belongs to."""

    run: Run
    partitions: I64
    sections: I64


@dataclass(frozen=True)
class RowMaker:
    """Makes state rows of the rows of one table; `store` is what the manifests name."""

    schema: WriteSchema
    store: str
    closed_through_us: int | None

    @property
    def spec(self) -> OperatorSpec:
        return self.schema.spec

    @cached_property
    def kind(self) -> FileKind:
        """The kind of segment that the rows go to."""
        return kinds_of(self.spec, self.store)[0]

    @cached_property
    def by_time(self) -> bool:
        return self.spec.work.keeps_rows and layout_at(self.spec, self.store) == "range"

    def rows(self, batch: pa.RecordBatch) -> StateRun:
        """The rows of a batch; raises `QueryError` for rows that cannot be state."""
        wire = self.schema.wire(batch)
        for field in self.spec.keys:
            wire[field.name] = normalised(_plain(wire[field.name], field.type), field.type)
        hashes = self._hashes(wire, batch.num_rows)
        wire[HASH] = pa.array(hashes.view(np.int64))
        keeps = self.spec.work.keeps_rows
        run, sections = self._kept(wire) if keeps else self._folded(wire, batch.num_rows)
        self._refuse_closed(sections)
        groups = hashes >> np.uint64(64 - GROUP_BITS)
        partitions = (groups * np.uint64(self.spec.partitions) >> np.uint64(GROUP_BITS)).astype(np.int64)
        return StateRun(run, partitions, sections)

    def _hashes(self, wire: dict[str, pa.Array], rows: int) -> U64:
        if not self.spec.keys:
            return np.full(rows, KEYLESS_HASH, np.uint64)
        return hashes_of([(wire[field.name], field.type) for field in self.spec.keys], rows)

    def _kept(self, wire: dict[str, pa.Array]) -> tuple[Run, I64]:
        spec, window = self.spec, self.spec.window
        assert window is not None, "kept rows have a window"
        if wire[TIME].null_count:
            raise QueryError(
                f"operator {spec.name}: event_time is null in {wire[TIME].null_count} rows",
                hint="leave these rows out",
            )
        if spec.work.has_sides:
            nulls = [pc.is_null(wire[field.name]) for field in spec.keys]
            alone = np.logical_or.reduce([np.asarray(null) for null in nulls]) if nulls else False
            sides = np.asarray(wire[SIDE]) + np.int8(ALONE) * alone
            wire[SIDE] = pa.array(sides.astype(np.int8))
        schema = input_schema(spec)
        columns = [_plain_array(wire[field.name], field.type) for field in schema]
        layout = KeptLayout(spec, hashed=self.by_time)
        run = pieces_of(layout, pa.RecordBatch.from_arrays(columns, schema=schema))
        bucket_us = window.every_us if self.by_time else window.slice_us
        sections = bucket_of(times_in(layout, run), window, bucket_us)
        return (by_time(layout, run) if self.by_time else run), sections

    def _folded(self, wire: dict[str, pa.Array], rows: int) -> tuple[Run, I64]:
        layout = RowLayout(self.spec)
        names = [HASH, *(field.name for field in self.spec.keys)]
        keys = probe_of(layout, pa.RecordBatch.from_arrays([wire[name] for name in names], names=names))
        builder = _FoldRows.over(keys, layout)
        for index, slot in enumerate(layout.accumulators):
            builder.put(index, slot, wire)
        return builder.run(keys.order.copy()), self._starts(wire, rows)

    def _starts(self, wire: dict[str, pa.Array], rows: int) -> I64:
        window = self.spec.window
        if window is None:
            return np.full(rows, WHOLE, np.int64)
        starts = wire[START]
        if starts.null_count:
            raise QueryError(
                f"operator {self.spec.name}: the window is null in {starts.null_count} rows",
                hint="leave these rows out",
            )
        times: I64 = np.asarray(starts.cast(pa.timestamp("us", starts.type.tz)).cast(pa.int64()))
        if np.any(np.mod(times - window.offset_us, window.slice_us)):
            raise QueryError(
                f"operator {self.spec.name}: windows start where the operator has none",
                hint=f"starts are {window.offset_us} µs and multiples of {window.slice_us} µs apart",
            )
        return times

    def _refuse_closed(self, sections: I64) -> None:
        window, bound = self.spec.window, self.closed_through_us
        closed = [int(at) for at in np.unique(sections) if is_closed(int(at), window, bound)]
        if closed:
            raise QueryError(
                f"operator {self.spec.name}: rows lie in windows that the watermark closed, such as the "
                f"one that starts at {closed[0]} µs",
                hint=f"leave out what ends at or before {bound} µs",
            )


@dataclass
class _FoldRows:
    """Rows of accumulators being put together, over the keys' words."""

    layout: RowLayout
    words: U64
    heaps: list[U8]

    @classmethod
    def over(cls, keys: Run, layout: RowLayout) -> _FoldRows:
        words = np.zeros((len(keys), layout.width), np.uint64)
        words[:, : layout.key_width] = keys.words
        return cls(layout, words, [keys.heap.copy()])

    def put(self, index: int, slot: AccumulatorSlot, wire: dict[str, pa.Array]) -> None:
        kind, of = slot.accumulator.kind, slot.accumulator.type
        if kind == "moments":
            for part, name in enumerate(("n", "mean", "m2")):
                self._put(wire[f"a{index}_{name}"], "double", slot.word + part)
            return
        if kind in ("first", "last"):
            valid = self._put(wire[f"a{index}"], of, slot.word + 1)
            order = "timestamp" if slot.accumulator.by is None else "int64"
            has = self._put(wire[f"a{index}_time"], order, slot.word)
            self._flag(slot.has_bit, has)
            self._flag(slot.second_bit, has & ~valid)
            return
        valid = self._put(wire[f"a{index}"], of, slot.word)
        if kind == "count":
            return
        overflowed = wire.get(f"a{index}_overflowed")
        if overflowed is not None:
            second = np.asarray(pc.fill_null(overflowed, False))
            self._flag(slot.second_bit, second)
            valid = valid | second
        self._flag(slot.has_bit, valid)

    def run(self, hashes: U64) -> Run:
        return Run(hashes, self.words, np.concatenate(self.heaps))

    def _put(self, array: pa.Array, kind: str, word: int) -> Flags:
        """Write one column; which of its values are not null."""
        column = column_of(_plain(array, kind), kind)
        part = column.words
        if len(column.heap):
            moved = np.uint64(sum(map(len, self.heaps)) << LENGTH_BITS)
            part = np.where(part == 0, part, part + moved)
            self.heaps.append(column.heap.copy())
        valid: Flags = column.valid if len(column.valid) else np.ones(len(part), np.bool_)
        self.words[:, word : word + part.shape[1]] = np.where(valid[:, None], part, np.uint64(0))
        return valid

    def _flag(self, bit: int, where: Flags) -> None:
        at = self.layout.key_width + bit // 64
        self.words[:, at] |= where.astype(np.uint64) << np.uint64(bit % 64)


def _plain(array: pa.Array, kind: str) -> pa.Array:
    return _plain_array(array, arrow_type(kind))


def _plain_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array in the type that state has; a timestamp's zone does not change its 64 bits."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if array.type == kind else array.cast(kind)
