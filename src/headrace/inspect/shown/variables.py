"""The state of a processor with the user's names: a row per key, a column per state variable.

    value  a struct · list  a list of structs · map  a map from struct to struct · timers  times

Cells come ordered by hash, and all cells of a hash in one batch. A value that has expired shows until the
processor's next batch drops it. Schemas are Spark's JSON; stored values are MessagePack.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from headrace.inspect.shown.columns import TableColumn, key_columns, schema_of
from headrace.plan.spec import OperatorSpec
from headrace.plan.work.cells import CELL, Cells, Variable

TIMERS = "timers"
_INDEX_BITS = 32
_INSTANT = pa.timestamp("us", tz="UTC")
_SIMPLE = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": _INSTANT,
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_unpack = msgspec.msgpack.Decoder().decode
Load = Callable[[Any], Any]


@dataclass(frozen=True)
class Decoder:
    """An Arrow type, and how a stored value becomes one that Arrow takes for it."""

    type: pa.DataType
    load: Load


class Variables:
    """Makes rows of cells into rows of variables."""

    def __init__(self, spec: OperatorSpec) -> None:
        assert isinstance(spec.work, Cells)
        self._keys = key_columns(spec)
        self._variables = [_Column(number, one) for number, one in enumerate(spec.work.variables)]
        self._has_timers = spec.work.time_mode.lower() != "none"

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [pa.field(column.name, column.type) for column in self._variables]
        if self._has_timers:
            fields.append(pa.field(TIMERS, pa.list_(_INSTANT)))
        return pa.schema([*schema_of(self._keys), *fields])

    def table(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        """One row per key of a batch of cells, in the order of their headers."""
        numbers: list[int] = cells.column(CELL).to_pylist()
        values: list[bytes] = cells.column(cells.num_columns - 1).to_pylist()
        of_key = _key_numbers(self._keys, cells)
        further = {
            (key, number): value
            for key, number, value in zip(of_key, numbers, values, strict=True)
            if number
        }
        heads = [row for row, number in enumerate(numbers) if number == 0]
        headers = [(of_key[row], _unpack(values[row])) for row in heads]
        shown = cells.take(pa.array(heads, pa.int64()))
        arrays = [column.make(shown) for column in self._keys]
        arrays += [column.array(headers, further) for column in self._variables]
        if self._has_timers:
            timers = [[at_ms * 1000 for at_ms in header[0] or ()] for _, header in headers]
            arrays.append(pa.array(timers, pa.list_(_INSTANT)))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


Headers = Sequence[tuple[int, list[Any]]]  # the number of a key, and [timers, entries of its variables …]
Further = dict[tuple[int, int], bytes]  # cells beside the header, by key and cell number


class _Column:
    """One state variable as a column."""

    def __init__(self, number: int, variable: Variable) -> None:
        self.name = variable.name
        self._number, self._kind, self._expires = number, variable.kind, variable.ttl_ms > 0
        self._value = decoder(json.loads(variable.schema))
        self._key = decoder(json.loads(variable.key_schema)) if variable.key_schema else None

    @property
    def type(self) -> pa.DataType:
        if self._kind == "list":
            return pa.list_(self._value.type)
        return pa.map_(self._key.type, self._value.type) if self._key else self._value.type

    def array(self, headers: Headers, further: Further) -> pa.Array:
        return pa.array([self._entry(key, header, further) for key, header in headers], self.type)

    def _entry(self, key: int, header: list[Any], further: Further) -> Any:
        entry = header[self._number + 1] if len(header) > self._number + 1 else None
        if entry is None:
            return None
        if self._kind == "list":
            return [self._live(item) for item in self._items(key, entry, further)]
        if self._key:
            pairs = self._pairs(key, entry, further)
            return [(self._key.load(_unpack(packed)), self._live(item)) for packed, item in pairs]
        return self._live(entry)

    def _live(self, stamped: Any) -> Any:
        return self._value.load(stamped[0] if self._expires else stamped)

    def _items(self, key: int, entry: Any, further: Further) -> Iterator[Any]:
        chunks, tail = entry
        for chunk in range(chunks):
            yield from _unpack(further[key, self._cell(chunk)])
        yield from tail

    def _pairs(self, key: int, entry: Any, further: Further) -> Iterator[tuple[bytes, Any]]:
        if isinstance(entry, dict):
            yield from entry.items()
            return
        for bucket in range(entry[0]):
            packed = further.get((key, self._cell(bucket)))
            yield from ({} if packed is None else _unpack(packed)).items()

    def _cell(self, index: int) -> int:
        return (self._number + 1) << _INDEX_BITS | index


def decoder(kind: Any) -> Decoder:
    """How values of a type of Spark, as its JSON names it, become values of Arrow."""
    if isinstance(kind, str):
        return _simple(kind)
    if kind["type"] == "struct":
        return _struct([(field["name"], decoder(field["type"])) for field in kind["fields"]])
    if kind["type"] == "array":
        item = decoder(kind["elementType"])
        return Decoder(pa.list_(item.type), lambda stored: [_or_null(item, one) for one in stored])
    if kind["type"] == "map":
        key, value = decoder(kind["keyType"]), decoder(kind["valueType"])
        pairs = pa.map_(key.type, value.type)
        return Decoder(pairs, lambda stored: [(key.load(k), _or_null(value, v)) for k, v in stored])
    return Decoder(pa.string(), str)  # a type of the user: its text


def _struct(fields: list[tuple[str, Decoder]]) -> Decoder:
    def load(stored: list[Any]) -> dict[str, Any]:
        """Fields that a schema gained after the value was stored are null."""
        values = [*stored, *[None] * (len(fields) - len(stored))]
        pairs = zip(fields, values, strict=False)
        return {name: _or_null(one, value) for (name, one), value in pairs}

    return Decoder(pa.struct([pa.field(name, one.type) for name, one in fields]), load)


def _simple(name: str) -> Decoder:
    if name.startswith("decimal"):
        precision, scale = (int(part) for part in name[len("decimal(") : -1].split(","))
        return Decoder(pa.decimal128(precision, scale), Decimal)
    if name.startswith("interval"):
        return Decoder(pa.duration("us"), lambda stored: stored)
    if name == "string" or name not in _SIMPLE:
        return Decoder(pa.string(), lambda stored: stored)
    if name in ("float", "double"):
        return Decoder(_SIMPLE[name], float)
    return Decoder(_SIMPLE[name], lambda stored: stored)


def _or_null(one: Decoder, value: Any) -> Any:
    return None if value is None else one.load(value)


def _key_numbers(keys: Sequence[TableColumn], cells: pa.RecordBatch) -> list[int]:
    """A number for each row that rows of one key share."""
    wire = list(dict.fromkeys(name for column in keys for name in column.wire))
    columns = [cells.column(name) for name in wire]
    number: dict[tuple[Any, ...], int] = {}
    rows = zip(*(column.to_pylist() for column in columns), strict=True) if columns else [()] * len(cells)
    return [number.setdefault(row, len(number)) for row in rows]
