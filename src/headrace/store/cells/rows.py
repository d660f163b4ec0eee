"""Cells as state rows, and state rows as cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.plan.columns import TIME, Field
from headrace.plan.spec import Accumulator, Fold, OperatorSpec, Window, output_schema
from headrace.plan.work.cells import CELL, CELL_FIELD, VALUE, VALUE_FIELD
from headrace.row.arrays import I64, Flags
from headrace.row.layout import LENGTH_BITS, RowLayout
from headrace.row.run import Run
from headrace.store.rows.arrow import array_of, column_of, probe_of

REMINDER_US = 60_000_000  # reminders of one minute share a slice


def cell_spec(spec: OperatorSpec) -> OperatorSpec:
    """The state rows of cells: one value of bytes per key and cell number."""
    work = Fold((Accumulator("max", VALUE, "binary"),))
    return replace(
        spec, keys=(*spec.keys, CELL_FIELD), inputs=(VALUE_FIELD,), work=work, window=None, timed=False
    )


def reminder_spec(spec: OperatorSpec) -> OperatorSpec:
    """The state rows of reminders: keys by time, in slices of a minute; CELL is the time in ms."""
    work, window = Fold((Accumulator("count", None, "int64"),)), Window(REMINDER_US)
    return replace(spec, keys=(*spec.keys, CELL_FIELD), inputs=(), work=work, window=window, timed=True)


def cell_run(layout: RowLayout, rows: pa.RecordBatch) -> Run:
    """Whole state rows of cells, in the order of the batch; a null value marks a deleted cell."""
    probe, value = probe_of(layout, rows), column_of(rows.column(VALUE), "binary")
    slot = layout.accumulators[0]
    words = np.zeros((len(probe), layout.width), np.uint64)
    words[:, : layout.key_width] = probe.words
    moved = np.uint64(len(probe.heap) << LENGTH_BITS)
    valid = value.valid if len(value.valid) else np.ones(len(probe), np.bool_)
    pointers = value.words[:, 0]
    words[:, slot.word] = np.where(valid & (pointers != 0), pointers + moved, np.uint64(0))
    words[:, layout.key_width] = np.where(valid, np.uint64(1 << slot.has_bit), np.uint64(0))
    return Run(probe.order, words, np.concatenate([probe.heap, value.heap]))


def is_deleted(layout: RowLayout, run: Run) -> Flags:
    """Which rows are tombstones of deleted cells."""
    word, bit = has_value(layout)
    deleted: Flags = (run.words[:, word] & np.uint64(bit)) == 0
    return deleted


def has_value(layout: RowLayout) -> tuple[int, int]:
    """The word and the bit that cells with a value have."""
    return layout.key_width, 1 << layout.accumulators[0].has_bit


def values_of(layout: RowLayout, run: Run) -> pa.Array:
    """The values of cells; null where a cell was deleted."""
    return array_of("binary", run.words, layout.accumulators[0].word, run.heap, ~is_deleted(layout, run))


def answer_of(spec: OperatorSpec, values: pa.Array) -> pa.RecordBatch:
    """Values as a batch of the operator's output schema; the other columns are null."""
    schema = output_schema(spec)
    columns = [values if field.name == VALUE else pa.nulls(len(values), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def due_of(spec: OperatorSpec, keys: pa.RecordBatch, hashes: I64) -> pa.RecordBatch:
    """Keys whose time has come as a batch of the operator's output schema."""
    schema = output_schema(spec)
    known = {name: keys.column(name) for name in keys.schema.names}
    known[schema.names[-1]] = pa.array(hashes, pa.int64())
    columns = [known.get(field.name, pa.nulls(keys.num_rows, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_time(rows: pa.RecordBatch, times_us: I64, keys: tuple[Field, ...]) -> pa.RecordBatch:
    """Reminders with the event time that decides their slice."""
    time = pa.array(times_us, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    names = [rows.schema.names[0], TIME, *(field.name for field in keys), CELL]
    columns = {TIME: time, **{name: rows.column(name) for name in rows.schema.names}}
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
