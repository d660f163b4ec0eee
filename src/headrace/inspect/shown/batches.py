"""State rows as Arrow batches of wire columns: hash, keys, bounds, then what the operator holds.

    fold  hash · keys · [start · end] · accumulators, each with all its parts
    kept  hash · keys · [start · end] · [event time] · [side] · inputs

Bounds are those of the window, of the slice where windows slide, or of the session.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.plan.spec import (
    HASH,
    SIDE,
    TIME,
    WINDOW_END,
    WINDOW_START,
    Accumulator,
    OperatorSpec,
    result_columns,
)
from headrace.plan.types import arrow_type
from headrace.row.arrays import I64, U64, Flags
from headrace.row.layout import AccumulatorSlot, RowLayout
from headrace.row.run import Run
from headrace.store.rows.arrow import array_of
from headrace.store.rows.kept_layout import KeptLayout, input_array, key_array

Bounds = tuple[I64, I64]


def state_columns(spec: OperatorSpec) -> list[tuple[str, str]]:
    """Names and types of a batch's columns."""
    columns = [(HASH, "int64"), *((field.name, field.type) for field in spec.keys)]
    if spec.window is not None and (spec.window.session or not spec.work.keeps_rows):
        columns += [(WINDOW_START, "timestamp"), (WINDOW_END, "timestamp")]
    if spec.work.keeps_rows:
        columns += [(TIME, "timestamp")] if spec.timed else []
        columns += [(SIDE, "int8")] if spec.work.has_sides else []
        return columns + [(field.name, field.type) for field in spec.inputs]
    for index, accumulator in enumerate(spec.work.accumulators):
        columns += accumulator_columns(index, accumulator)
    return columns


def accumulator_columns(index: int, accumulator: Accumulator) -> list[tuple[str, str]]:
    """All parts of accumulator number `index`: what its result shows, and what only its state has."""
    columns = [(column.name, column.type) for column in result_columns(index, accumulator)]
    if accumulator.kind in ("first", "last"):
        columns.append((f"a{index}_time", "timestamp" if accumulator.by is None else "int64"))
    if accumulator.kind == "sum" and accumulator.overflow == "null":
        columns.append((f"a{index}_overflowed", "bool"))
    return columns


def state_schema(spec: OperatorSpec) -> pa.Schema:
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in state_columns(spec)])


def fold_batch(
    spec: OperatorSpec, layout: RowLayout, run: Run, slice_us: int | None, bounds: Bounds | None = None
) -> pa.RecordBatch:
    """Rows of accumulators; of one slice, or each with its bounds. `layout` may have hidden columns too."""
    columns = [_hashes(run)]
    columns += [key_array(slot, run) for slot in layout.keys[: len(spec.keys)]]
    if spec.window is not None:
        if bounds is None:
            assert slice_us is not None
            start = np.full(len(run), slice_us, np.int64)
            bounds = start, start + spec.window.slice_us
        columns += _bounds(bounds)
    for slot in layout.accumulators[: len(spec.work.accumulators)]:
        columns += _parts(layout, slot, run)
    return pa.RecordBatch.from_arrays(columns, schema=state_schema(spec))


def kept_batch(layout: KeptLayout, run: Run, bounds: Bounds | None = None) -> pa.RecordBatch:
    """Kept rows; `order` of the run has their hashes."""
    columns = [_hashes(run), *(key_array(slot, run) for slot in layout.keys)]
    columns += [] if bounds is None else _bounds(bounds)
    if layout.spec.timed:
        columns.append(array_of("timestamp", run.words, layout.time_word, run.heap, None))
    if layout.side_word is not None:
        columns.append(array_of("int8", run.words, layout.side_word, run.heap, None))
    columns += [input_array(slot, run) for slot in layout.inputs]
    return pa.RecordBatch.from_arrays(columns, schema=state_schema(layout.spec))


def _hashes(run: Run) -> pa.Array:
    return pa.array(np.ascontiguousarray(run.order).view(np.int64))


def _bounds(bounds: Bounds) -> list[pa.Array]:
    return [pa.array(times).view(arrow_type("timestamp")) for times in bounds]


def _parts(layout: RowLayout, slot: AccumulatorSlot, run: Run) -> list[pa.Array]:
    kind, of, words = slot.accumulator.kind, slot.accumulator.type, run.words
    if kind == "moments":
        return [array_of("double", words, slot.word + part, run.heap, None) for part in range(3)]
    if kind == "count":
        return [array_of("int64", words, slot.word, run.heap, None)]
    has = _flag(words, layout.key_width, slot.has_bit)
    second = _flag(words, layout.key_width, slot.second_bit)
    value = array_of(of, words, slot.word + (kind in ("first", "last")), run.heap, has & ~second)
    if kind in ("first", "last"):
        order = "timestamp" if slot.accumulator.by is None else "int64"
        return [value, array_of(order, words, slot.word, run.heap, has)]
    if kind == "sum" and slot.accumulator.overflow == "null":
        return [value, pa.array(second)]
    return [value]


def _flag(words: U64, first: int, bit: int) -> Flags:
    flags: Flags = (words[:, first + bit // 64] & np.uint64(1 << bit % 64)) != 0
    return flags
