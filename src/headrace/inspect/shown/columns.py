"""State with the user's columns: wire columns in, named and finalised columns out. Pure functions.

    results       keys · [window] · what the query would return for the row
    accumulators  keys · [window] · every part of every accumulator, from which state can be written again
    kept rows     keys · [window] · [event_time] · [side] · the columns that are kept

The window is a struct (start, end). Where windows slide it is called `slice`: state has a row per slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from headrace.inspect.shown.batches import accumulator_columns, state_columns
from headrace.inspect.shown.finalise import estimates, finalised
from headrace.inspect.shown.packed import packed_kind, unpacked
from headrace.plan.columns import own_bounds
from headrace.plan.shown import ShownColumn
from headrace.plan.spec import LEFT, SIDE, TIME, WINDOW_END, WINDOW_START, Accumulator, Field, OperatorSpec
from headrace.plan.types import arrow_type, is_packed
from headrace.plan.work.cells import CELL
from headrace.plan.work.dedup import Dedup

Make = Callable[[pa.RecordBatch], pa.Array]
EVENT_TIME, SIDE_NAME, WINDOW, SLICE = "event_time", "side", "window", "slice"
SIDES = ("left", "right")


@dataclass(frozen=True)
class TableColumn:
    """One column of a table: its name and type, and how it is made of wire columns."""

    name: str
    type: pa.DataType
    make: Make
    wire: tuple[str, ...]  # the wire columns that it is made of


def table_columns(
    spec: OperatorSpec, *, accumulators: bool = False, as_bytes: bool = False
) -> list[TableColumn]:
    """The columns of an operator's state; packed values have their own types, or stay as bytes."""
    columns = _table_columns(spec, accumulators=accumulators)
    return columns if accumulators or as_bytes else [_unpacked(column, spec) for column in columns]


def _table_columns(spec: OperatorSpec, *, accumulators: bool) -> list[TableColumn]:
    columns = key_columns(spec)
    columns += window_columns(spec)
    if spec.work.keeps_rows:
        columns += _kept_columns(spec)
    elif spec.keys and spec.keys[-1].name == CELL:
        columns.append(_plain("value", "a0", "binary"))
    elif isinstance(spec.work, Dedup) and not accumulators:
        columns += [_plain(EVENT_TIME, "a0", "timestamp")] if spec.timed else []
    elif accumulators or not _values(spec):
        columns += accumulator_parts(spec)
    else:
        columns += [_shown(shown) for shown in _values(spec)]
    return _distinct(columns)


def _unpacked(column: TableColumn, spec: OperatorSpec) -> TableColumn:
    """The column with values of their own type, if it is one packed wire column."""
    kind = packed_kind(_wire_types(spec).get(column.wire[0], "")) if len(column.wire) == 1 else None
    if kind is None or column.type != pa.binary():
        return column
    return replace(column, type=kind.arrow, make=lambda batch: unpacked(column.make(batch), kind))


@lru_cache(maxsize=64)
def _wire_types(spec: OperatorSpec) -> dict[str, str]:
    """The packed types of wire columns."""
    return {name: kind for name, kind in state_columns(spec) if is_packed(kind)}


def schema_of(columns: Sequence[TableColumn]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def as_table(columns: Sequence[TableColumn], batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of wire columns as the user sees it."""
    return pa.RecordBatch.from_arrays([c.make(batch) for c in columns], schema=schema_of(columns))


def key_columns(spec: OperatorSpec) -> list[TableColumn]:
    fields = [field for field in spec.keys if field.name not in (own_bounds(spec.keys) or ())]
    names = {field.name for field in fields}
    recorded = [shown for shown in spec.shown if set(shown.leaves()) <= names]
    if recorded and {leaf for shown in recorded for leaf in shown.leaves()} == names:
        return [_shown(shown) for shown in recorded]
    return [_plain(field.label or field.name, field.name, field.type) for field in fields]


def window_columns(spec: OperatorSpec) -> list[TableColumn]:
    window = spec.window
    if window is None or (spec.work.keeps_rows and not window.session):
        return []
    whole = window.session or window.every_us == window.width_us
    bound = arrow_type("timestamp")
    kind = pa.struct([pa.field("start", bound), pa.field("end", bound)])
    bounds = own_bounds(spec.keys) or (WINDOW_START, WINDOW_END)
    return [TableColumn(WINDOW if whole else SLICE, kind, lambda batch: _window(batch, bounds), bounds)]


def accumulator_parts(spec: OperatorSpec) -> list[TableColumn]:
    """A column for each part of each accumulator, under a name of its kind and input."""
    columns: list[TableColumn] = []
    for index, name in enumerate(accumulator_names(spec)):
        for wire, kind in accumulator_columns(index, spec.work.accumulators[index]):
            part = wire.partition("_")[2]
            columns.append(_plain(f"{name}.{part}" if part else name, wire, kind))
    return columns


def accumulator_names(spec: OperatorSpec) -> list[str]:
    """What each accumulator is called: `count`, `sum(amount)`; with its type where two would be equal."""
    inputs = {field.name: field for field in spec.inputs}
    plain = [_accumulator_name(one, inputs.get(one.input or "")) for one in spec.work.accumulators]
    return [
        f"{name[:-1]} as {inputs[one.input].type})"
        if one.input in inputs and plain.count(name) > 1
        else name
        for name, one in zip(plain, spec.work.accumulators, strict=True)
    ]


def _accumulator_name(accumulator: Accumulator, field: Field | None) -> str:
    if field is None and accumulator.input == TIME:
        return f"{accumulator.kind}({EVENT_TIME})"
    return accumulator.kind if field is None else f"{accumulator.kind}({field.label or field.name})"


def _values(spec: OperatorSpec) -> list[ShownColumn]:
    keys = {field.name for field in spec.keys}
    return [shown for shown in spec.shown if not set(shown.leaves()) <= keys]


def _shown(shown: ShownColumn) -> TableColumn:
    return TableColumn(
        shown.name, shown_type(shown), lambda batch: made(shown, batch), tuple(shown.leaves())
    )


def shown_type(shown: ShownColumn) -> pa.DataType:
    if shown.kind == "struct":
        return pa.struct([pa.field(field.name, shown_type(field)) for field in shown.fields])
    return arrow_type(shown.type)


def made(shown: ShownColumn, batch: pa.RecordBatch) -> pa.Array:
    """A shown column of a batch of wire columns."""
    if shown.kind == "struct":
        mask = batch.column(shown.columns[0]) if shown.columns else None
        arrays = [made(field, batch) for field in shown.fields]
        return pa.StructArray.from_arrays(arrays, [field.name for field in shown.fields], mask=mask)
    parts = [batch.column(name) for name in shown.columns]
    if shown.kind == "column":
        return parts[0].cast(arrow_type(shown.type))
    if shown.kind == "estimate":
        return estimates(parts[0], shown.buckets)
    return finalised(shown.kind, parts, shown.type)


def _plain(name: str, wire: str, kind: str) -> TableColumn:
    return TableColumn(name, arrow_type(kind), lambda batch: batch.column(wire), (wire,))


def _window(batch: pa.RecordBatch, bounds: tuple[str, str]) -> pa.Array:
    return pa.StructArray.from_arrays([batch.column(name) for name in bounds], ["start", "end"])


def _kept_columns(spec: OperatorSpec) -> list[TableColumn]:
    columns = [_plain(EVENT_TIME, TIME, "timestamp")] if spec.timed else []
    if not spec.work.has_sides:
        until = None if spec.window is None else spec.window.until  # the window has it
        return columns + [_plain(f.label or f.name, f.name, f.type) for f in spec.inputs if f.name != until]
    columns.append(TableColumn(SIDE_NAME, pa.string(), _side_names, (SIDE,)))
    sides = enumerate(spec.work.side_columns())
    return columns + [_of_side(number, field) for number, fields in sides for field in fields]


def _side_names(batch: pa.RecordBatch) -> pa.Array:
    is_left = pc.equal(pc.bit_wise_and(batch.column(SIDE), pa.scalar(1, pa.int8())), LEFT)
    return pc.if_else(is_left, *SIDES)


def _of_side(number: int, field: Field) -> TableColumn:
    """A column of one side of a join; null in rows of the other."""

    def make(batch: pa.RecordBatch) -> pa.Array:
        side = pc.bit_wise_and(batch.column(SIDE), pa.scalar(1, pa.int8()))
        nothing = pa.scalar(None, arrow_type(field.type))
        return pc.if_else(pc.equal(side, number), batch.column(field.name), nothing)

    return TableColumn(field.label or field.name, arrow_type(field.type), make, (field.name,))


def _distinct(columns: list[TableColumn]) -> list[TableColumn]:
    """Names that are taken get a leading underscore; keys and the user's own columns keep theirs."""
    wire_first = sorted(columns, key=lambda column: column.name in (EVENT_TIME, SIDE_NAME, WINDOW, SLICE))
    used: set[str] = set()
    names: dict[int, str] = {}
    for column in wire_first:
        name = column.name
        while name.casefold() in used:
            name = f"_{name}"
        used.add(name.casefold())
        names[id(column)] = name
    return [replace(column, name=names[id(column)]) for column in columns]
