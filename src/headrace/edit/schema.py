"""Which column of a table holds which part of state; a table that does not fit is refused by name. Pure.

fold  keys · [window or slice] · accumulators, by the name of their result or of their part
kept  keys · event_time · [side] · the columns that are kept
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import QueryError
from headrace.inspect.shown.batches import accumulator_columns
from headrace.inspect.shown.columns import SIDE_NAME, SIDES, TableColumn, accumulator_parts, table_columns
from headrace.plan.shown import ShownColumn
from headrace.plan.spec import SIDE, TIME, OperatorSpec
from headrace.plan.types import arrow_type

Take = Callable[[pa.RecordBatch], pa.Array]  # a wire column of the user's batch
START = "__start"  # of the window, among the wire columns


@dataclass(frozen=True)
class WriteSchema:
    """How the columns of a table become wire columns."""

    spec: OperatorSpec
    schema: pa.Schema

    @cached_property
    def takes(self) -> dict[str, Take]:
        """A function per wire column; raises `QueryError` where the table does not fit."""
        takes: dict[str, Take] = {}
        expected = self._kept() if self.spec.work.keeps_rows else self._folded()
        columns = {column.name: column for column in expected}
        self._check(columns)
        for column in expected:
            if column.name in self.schema.names:
                takes |= self._takes_of(column)
        return takes

    def wire(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """A batch of the table as wire columns."""
        wire = {name: take(batch) for name, take in self.takes.items()}
        return wire | self._of_sides(wire, batch) if self.spec.work.has_sides else wire

    def _folded(self) -> list[TableColumn]:
        """Keys, window, and for each part of an accumulator the column that the table has of it."""
        spec = self.spec
        shown = {column.name: column for column in table_columns(spec, as_bytes=True)}
        values = [one.name for one in self._plain_results()]
        heads = [column for name, column in shown.items() if name not in self._value_names()]
        named = {shown[name].wire[0]: shown[name] for name in values}
        parts = [
            column if column.name in self.schema.names else named.get(column.wire[0], column)
            for column in accumulator_parts(spec)
        ]
        return heads + list({column.name: column for column in parts}.values())

    def _plain_results(self) -> list[ShownColumn]:
        """Results that are an accumulator as it is; one result per accumulator, the first."""
        kinds = dict(
            part
            for index, one in enumerate(self.spec.work.accumulators)
            for part in accumulator_columns(index, one)[:1]
        )
        fitting: dict[str, ShownColumn] = {}
        for one in self.spec.shown:
            if one.kind == "column" and one.columns[0] in kinds and kinds[one.columns[0]] == one.type:
                fitting.setdefault(one.columns[0], one)
        return list(fitting.values())

    def _value_names(self) -> set[str]:
        keys = {field.name for field in self.spec.keys}
        results = {one.name for one in self.spec.shown if not set(one.leaves()) <= keys}
        return results | {column.name for column in accumulator_parts(self.spec)}

    @cached_property
    def _table(self) -> list[TableColumn]:
        return table_columns(self.spec, as_bytes=True)

    def _kept(self) -> list[TableColumn]:
        return self._table

    @cached_property
    def _sides(self) -> list[TableColumn]:
        """The columns of a join's sides, in the order of left and right."""
        columns = sum(map(len, self.spec.work.side_columns()))
        return self._table[-columns:] if columns else []

    def _of_sides(self, wire: dict[str, pa.Array], batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The inputs of a join: each carries a column of the left side, of the right side, or of both."""
        right = pc.equal(wire[SIDE], 1)
        of = {n: {c.wire[0]: c.name for c in part} for n, part in enumerate(self._split())}
        columns = {}
        for field in self.spec.inputs:
            nothing = pa.nulls(batch.num_rows, arrow_type(field.type))
            left_of, right_of = (
                batch.column(of[n][field.name]).cast(nothing.type) if field.name in of[n] else nothing
                for n in (0, 1)
            )
            columns[field.name] = pc.if_else(right, right_of, left_of)
        return columns

    def _split(self) -> tuple[list[TableColumn], list[TableColumn]]:
        left = len(self.spec.work.side_columns()[0])
        return self._sides[:left], self._sides[left:]

    def _check(self, columns: dict[str, TableColumn]) -> None:
        spec, names = self.spec, self.schema.names
        missing = [
            name for name, column in columns.items() if name not in names and self._is_needed(column)
        ]
        unknown = [name for name in names if name not in columns]
        if missing or unknown:
            derived = [one.name for one in spec.shown if one.kind not in ("column", "struct")]
            why = f"; {', '.join(derived)} cannot be taken apart" if derived else ""
            shown = ", ".join(f"{name} {column.type}" for name, column in columns.items())
            raise QueryError(
                f"the table does not fit the state of operator {spec.name}: "
                + "; ".join(
                    [f"column {name} is missing" for name in missing]
                    + [f"column {name} is not part of the state" for name in unknown]
                )
                + why,
                hint=f'its columns are {shown}; a read with .option("accumulators", "true") has them',
            )
        wrong = [
            f"column {name} is {self.schema.field(name).type}, the state has {column.type}"
            for name, column in columns.items()
            if name in names and not _fits(self.schema.field(name).type, column.type)
        ]
        if wrong:
            raise QueryError(
                f"the table does not fit the state of operator {spec.name}: {'; '.join(wrong)}",
                hint="cast these columns before the write",
            )

    def _is_needed(self, column: TableColumn) -> bool:
        """Overflows are rare, and the event time of a join's side is its event_time."""
        own_time = self.spec.work.has_sides and column in self._sides and column.wire == (TIME,)
        return not own_time and not column.name.endswith(".overflowed")

    def _takes_of(self, column: TableColumn) -> dict[str, Take]:
        name = column.name
        shown = next((one for one in self.spec.shown if one.name == name), None)
        if shown is not None and shown.kind == "struct":
            return _leaves(shown, lambda batch: batch.column(name))
        if self.spec.work.keeps_rows and name.lstrip("_") == SIDE_NAME and column.wire == (SIDE,):
            return {SIDE: lambda batch: _sides(self.spec, batch.column(name))}
        if pa.types.is_struct(column.type):  # the window: its start identifies it
            return {START: lambda batch: pc.struct_field(batch.column(name), "start")}
        if self.spec.work.has_sides and column in self._sides:
            return {}
        return {column.wire[0]: lambda batch: batch.column(name).cast(column.type)}


def _leaves(shown: ShownColumn, take: Take) -> dict[str, Take]:
    """The leaves of a struct, as `keys.flatten` makes them."""
    if shown.kind != "struct":
        kind = arrow_type(shown.type)
        return {shown.columns[0]: lambda batch: take(batch).cast(kind)}
    takes: dict[str, Take] = {}
    if shown.columns:
        takes[shown.columns[0]] = lambda batch: pc.is_null(take(batch))
    for field in shown.fields:
        takes |= _leaves(field, lambda batch, name=field.name: pc.struct_field(take(batch), name))  # type: ignore[misc]
    return takes


def _sides(spec: OperatorSpec, sides: pa.Array) -> pa.Array:
    known = pc.is_in(sides, value_set=pa.array(SIDES))
    if not pc.all(known).as_py():
        raise QueryError(
            f"operator {spec.name}: column {SIDE_NAME} has values other than left and right",
            hint="write 'left' or 'right' in every row",
        )
    return pc.equal(sides, SIDES[1]).cast(pa.int8())


def _fits(given: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of one type is a value of the other."""
    if given == target:
        return True
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(target):
        return given.unit == target.unit and (given.tz is None) == (target.tz is None)
    if pa.types.is_struct(given) and pa.types.is_struct(target):
        names = [[field.name for field in kind] for kind in (given, target)]
        return names[0] == names[1] and all(
            _fits(given.field(n).type, target.field(n).type) for n in names[0]
        )
    integers = pa.types.is_integer(given) and pa.types.is_integer(target)
    floats = pa.types.is_floating(given) and pa.types.is_floating(target)
    return (integers or floats) and bool(given.bit_width <= target.bit_width)
