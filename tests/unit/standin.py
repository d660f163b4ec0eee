"""A stand-in for the state host: one batch, fresh state, plain Python.

It groups by the exact bits of the key leaves, so that a key that the JVM did not normalise shows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from headrace.plan.spec import (
    TIME,
    WINDOW_END,
    WINDOW_START,
    Accumulator,
    OperatorSpec,
    input_schema,
    output_schema,
)


def standin_task(spec: OperatorSpec) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that aggregates what it gets and forgets it."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wire = input_schema(spec)
        table = pa.Table.from_batches(list(batches)) if (batches := list(batches)) else wire.empty_table()
        assert table.column_names == wire.names, (table.column_names, wire.names)
        table = table.cast(wire)
        columns = {name: _values(table.column(name)) for name in table.column_names}
        groups: dict[Any, list[int]] = {}
        for row in range(table.num_rows):
            start = _start(spec, columns[TIME][row]) if spec.window else None
            key = tuple(_bits(columns[f.name][row]) for f in spec.keys)
            groups.setdefault((key, start), []).append(row)
        yield _results(spec, columns, groups)

    return task


def _values(column: pa.ChunkedArray) -> list[Any]:
    whole = pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type)
    return (column.cast(pa.int64()) if whole else column).to_pylist()


def _start(spec: OperatorSpec, time: int) -> int:
    assert spec.window
    return time - (time - spec.window.offset_us) % spec.window.width_us


def _bits(value: Any) -> Any:
    return struct.pack("d", value) if isinstance(value, float) else value


def _results(
    spec: OperatorSpec, columns: dict[str, list[Any]], groups: dict[Any, list[int]]
) -> pa.RecordBatch:
    made: list[list[Any]] = []
    for (_, start), rows in groups.items():
        out: list[Any] = [columns[f.name][rows[0]] for f in spec.keys]
        if spec.window:
            out += [start, start + spec.window.width_us]
        for accumulator in spec.work.accumulators:
            out += _accumulated(accumulator, columns, rows)
        made.append(out)
    schema = output_schema(spec)
    if not spec.keys and not spec.window and not made:
        return pa.RecordBatch.from_pylist([], schema)
    by_column = list(zip(*made, strict=True)) if made else [[] for _ in schema.names]
    assert {WINDOW_START, WINDOW_END} <= set(schema.names) or not spec.window
    arrays = [pa.array(values, field.type) for values, field in zip(by_column, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _accumulated(accumulator: Accumulator, columns: dict[str, list[Any]], rows: list[int]) -> list[Any]:
    if accumulator.input is None:
        return [len(rows)]
    column = columns[accumulator.input]
    if accumulator.kind in ("first", "last"):
        timed = [(columns[TIME][row], row) for row in rows if columns[TIME][row] is not None]
        pick = min if accumulator.kind == "first" else max
        return [column[pick(timed)[1]] if timed else None]
    values = [column[row] for row in rows if column[row] is not None]
    if accumulator.kind == "count":
        return [len(values)]
    if accumulator.kind == "moments":
        mean = math.fsum(values) / len(values) if values else 0.0
        return [float(len(values)), mean, math.fsum((v - mean) ** 2 for v in values)]
    if not values:
        return [None]
    if accumulator.kind == "sum":
        return [sum(values[1:], start=values[0])]
    rank = {True: lambda v: (1, 0.0) if math.isnan(v) else (0, v), False: lambda v: v}[
        isinstance(values[0], float)
    ]
    return [(min if accumulator.kind == "min" else max)(values, key=rank)]
