"""Values of a user as Spark stores them, and back: one converter per schema.

A stored value is made of what MessagePack has: integers, floats, text, bytes, lists. Values follow Spark's
own rules for pickled values: integers wrap to the width of their column, an integer in a column of doubles
becomes null, anything becomes text in a column of strings.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types as T

from headrace.errors import QueryError

Convert = Callable[[Any], Any]

_WIDTHS = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_EXACT: dict[type, type] = {
    **dict.fromkeys(_WIDTHS, int),
    T.BooleanType: bool,
    T.DoubleType: float,
    T.StringType: str,
    T.BinaryType: bytes,
}
_LIST = b"\xdd"  # MessagePack's mark of a list whose length is four bytes
_PLAIN = (int, float, str, bytes, bool, type(None))

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode


class RowConverter:
    """Converts tuples of one schema."""

    def __init__(self, schema: T.StructType) -> None:
        self.schema = schema
        self.width = len(schema.fields)
        self._store = tuple(storing(field.dataType) for field in schema.fields)
        self._exact = tuple(_EXACT.get(type(field.dataType)) for field in schema.fields)
        self._ranges = [
            (at, *_range(_WIDTHS[type(field.dataType)]))
            for at, field in enumerate(schema.fields)
            if type(field.dataType) in _WIDTHS
        ]
        self._only = self._ranges[0][1:] if self.width == len(self._ranges) == 1 else None
        self._load = tuple(loading(field.dataType) for field in schema.fields)
        self._loads_as_is = all(convert is _same for convert in self._load)
        self._last: Any = None  # a tuple of values that cannot change, and its packed form
        self._last_packed = b""

    def store(self, value: Any) -> list[Any]:
        """The stored form of a user's tuple."""
        if value is None:
            raise TypeError(f"state takes a tuple of {', '.join(self.schema.names)}, not None")
        row = value if type(value) is tuple else tuple(value)
        if self._only is not None and len(row) == 1 and type(row[0]) is int:
            low, high = self._only
            if low <= row[0] <= high:
                return [row[0]]
        if tuple(map(type, row)) == self._exact:
            for at, low, high in self._ranges:
                if not low <= row[at] <= high:
                    break
            else:
                return list(row)  # every value is stored as it is
        if len(row) != self.width:
            raise QueryError(
                f"the value {row!r} has {len(row)} fields, the state's schema has {self.width}",
                hint=f"pass a tuple of {', '.join(self.schema.names)}",
            )
        return [convert(item) for convert, item in zip(self._store, row, strict=True)]

    def packed(self, value: Any) -> bytes:
        """The stored form in MessagePack; a key that was read is often written next."""
        if value is self._last and value is not None:
            return self._last_packed
        data = pack(self.store(value))
        if type(value) is tuple and tuple(map(type, value)) == self._exact:
            self._last, self._last_packed = value, data
        return data

    def load(self, stored: list[Any]) -> tuple[Any, ...]:
        """The tuple that a user sees; fields that were added later are null."""
        if len(stored) < self.width:
            stored = [*stored, *[None] * (self.width - len(stored))]
        if self._loads_as_is:
            return tuple(stored)
        pairs = zip(self._load, stored, strict=False)
        return tuple(None if item is None else convert(item) for convert, item in pairs)


def unpack_all(values: pa.Array) -> list[Any]:
    """All values of a binary column, decoded by one call; null stays null."""
    known = values.drop_null()
    if not len(known):
        return [None] * len(values)
    bounds = np.frombuffer(known.buffers()[1], np.int32, len(known) + 1, known.offset * 4)
    data = memoryview(known.buffers()[2])[bounds[0] : bounds[-1]]
    decoded = unpack(_LIST + len(known).to_bytes(4, "big") + data.tobytes())
    if len(known) == len(values):
        return list(decoded)
    each = iter(decoded)
    return [next(each) if valid else None for valid in values.is_valid().to_pylist()]


def _range(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _same(value: Any) -> Any:
    return value


# ── to state ─────────────────────────────────────────────────────────────────────────────────


def storing(kind: T.DataType) -> Convert:
    """The conversion of a user's value of a type into its stored form."""
    if type(kind) in _WIDTHS:
        return _whole(_WIDTHS[type(kind)])
    if isinstance(kind, T.ArrayType):
        item = storing(kind.elementType)
        return lambda value: None if value is None else [item(one) for one in value]
    if isinstance(kind, T.MapType):
        key, item = storing(kind.keyType), storing(kind.valueType)
        return lambda value: None if value is None else [[key(k), item(v)] for k, v in value.items()]
    if isinstance(kind, T.StructType):
        return _struct(kind)
    if isinstance(kind, T.DecimalType):
        return _decimal(kind)
    simple = _STORING.get(type(kind))
    if simple is None:
        raise QueryError(
            f"state values of type {kind.simpleString()} are not supported",
            hint="store the value as a string, a binary or a struct of simple types",
        )
    return simple


def _plain(value: Any) -> Any:
    """A NumPy or pandas scalar as Python's own."""
    if type(value) in _PLAIN:
        return value
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime()
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
    return value.item() if hasattr(value, "item") and hasattr(value, "dtype") else value


def _whole(bits: int) -> Convert:
    (low, high), period = _range(bits), 1 << bits

    def convert(value: Any) -> Any:
        value = _plain(value)
        if type(value) is not int:
            return None
        if low <= value <= high:
            return value
        return None if bits == 64 else (value - low) % period + low

    return convert


def _boolean(value: Any) -> Any:
    value = _plain(value)
    return value if type(value) is bool else None


def _double(value: Any) -> Any:
    value = _plain(value)
    return value if type(value) is float else None


def _single(value: Any) -> Any:
    import struct

    value = _plain(value)
    return struct.unpack("f", struct.pack("f", value))[0] if type(value) is float else None


def _text(value: Any) -> Any:
    value = _plain(value)
    if value is None or type(value) is str:
        return value
    return str(value).lower() if type(value) is bool else str(value)


def _binary(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _date(value: Any) -> Any:
    return None if value is None else T.DateType().toInternal(_plain(value))


def _instant(value: Any) -> Any:
    return None if value is None else T.TimestampType().toInternal(_plain(value))


def _wall_time(value: Any) -> Any:
    return None if value is None else T.TimestampNTZType().toInternal(_plain(value))


def _interval(value: Any) -> Any:
    return None if value is None else T.DayTimeIntervalType().toInternal(_plain(value))


def _nothing(value: Any) -> Any:
    return None


def _decimal(kind: T.DecimalType) -> Convert:
    step = decimal.Decimal(1).scaleb(-kind.scale)
    limit = decimal.Decimal(10) ** (kind.precision - kind.scale)
    context = decimal.Context(prec=60, rounding=decimal.ROUND_HALF_UP)

    def convert(value: Any) -> Any:
        if not isinstance(value, decimal.Decimal) or not value.is_finite():
            return None
        fixed = value.quantize(step, context=context)
        if abs(fixed) >= limit:
            raise PySparkRuntimeError(
                f"Error updating state: [NUMERIC_VALUE_OUT_OF_RANGE.WITHOUT_SUGGESTION] The {fixed} "
                f"rounded half up from {value} cannot be represented as Decimal({kind.precision}, "
                f"{kind.scale})."
            )
        return str(fixed)

    return convert


def _struct(kind: T.StructType) -> Convert:
    names, fields = kind.names, [storing(field.dataType) for field in kind.fields]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        items = [value.get(name) for name in names] if isinstance(value, dict) else value
        return [field(item) for field, item in zip(fields, items, strict=True)]

    return convert


_STORING: dict[type, Convert] = {
    T.BooleanType: _boolean,
    T.DoubleType: _double,
    T.FloatType: _single,
    T.StringType: _text,
    T.BinaryType: _binary,
    T.DateType: _date,
    T.TimestampType: _instant,
    T.TimestampNTZType: _wall_time,
    T.DayTimeIntervalType: _interval,
    T.NullType: _nothing,
}


# ── from state ───────────────────────────────────────────────────────────────────────────────


def loading(kind: T.DataType) -> Convert:
    """The conversion of a stored value of a type into what a user sees; null never reaches it."""
    if isinstance(kind, T.ArrayType):
        item = _nullable(loading(kind.elementType))
        return _same if item is _same else lambda stored: [item(one) for one in stored]
    if isinstance(kind, T.MapType):
        key, value = loading(kind.keyType), _nullable(loading(kind.valueType))
        return lambda stored: {key(k): value(v) for k, v in stored}
    if isinstance(kind, T.StructType):
        row, fields = T.Row(*kind.names), [_nullable(loading(field.dataType)) for field in kind.fields]
        return lambda stored: row(*(field(item) for field, item in zip_longest(fields, stored)))
    if isinstance(kind, T.DecimalType):
        return decimal.Decimal
    if isinstance(kind, T.DoubleType | T.FloatType):
        return float
    return _LOADING.get(type(kind), _same)


def _nullable(convert: Convert) -> Convert:
    return convert if convert is _same else lambda item: None if item is None else convert(item)


def _to_date(days: int) -> dt.date:
    day: dt.date = T.DateType().fromInternal(days)
    return day


def _to_instant(micros: int) -> dt.datetime:
    time: dt.datetime = T.TimestampType().fromInternal(micros)
    return time


def _to_wall_time(micros: int) -> dt.datetime:
    time: dt.datetime = T.TimestampNTZType().fromInternal(micros)
    return time


def _to_interval(micros: int) -> dt.timedelta:
    return dt.timedelta(microseconds=micros)


_LOADING: dict[type, Convert] = {
    T.DateType: _to_date,
    T.TimestampType: _to_instant,
    T.TimestampNTZType: _to_wall_time,
    T.DayTimeIntervalType: _to_interval,
}
