"""Spark's types and the state types that carry them.

`state_type` is the state type whose values can be compared and added; it raises where there is none.
`carried_type` also packs: any type passes through state as bytes, arrays and structs as keys too.
`spark_type` is the Spark type in which a state type crosses the wire: the JVM casts to it on the way in,
and back to the user's own type on the way out.
"""

from __future__ import annotations

from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.types import decimal_parts, is_packed, packed_type

_STATE: dict[type, str] = {
    T.BooleanType: "bool",
    T.ByteType: "int8",
    T.ShortType: "int16",
    T.IntegerType: "int32",
    T.LongType: "int64",
    T.DateType: "date",
    T.TimestampType: "timestamp",
    T.TimestampNTZType: "timestamp_ntz",
    T.DayTimeIntervalType: "duration",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.CharType: "string",
    T.VarcharType: "string",
    T.BinaryType: "binary",
}
_INTEGRAL = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_SPARK = {name: kind for kind, name in _STATE.items() if kind not in (T.CharType, T.VarcharType)}
_WITHOUT_EQUALITY = (T.MapType, T.VariantType, T.CalendarIntervalType, T.UserDefinedType)
_DECIMAL_DIGITS_MAX = 38


def state_type(kind: T.DataType, where: str) -> str:
    """The state type that holds `kind`; `where` names the column in the error when none does."""
    name = _plain(kind)
    if name is not None:
        return name
    if isinstance(kind, T.StringType):
        raise QueryError(
            f"{where} has the type {kind.simpleString()}: collated strings cannot be compared in state",
            hint=f"compare bytes instead: cast it, as in F.col(…).cast('string'), or drop {kind.collation}",
        )
    raise QueryError(
        f"{where} has the type {kind.simpleString()}, whose values cannot be compared in state",
        hint="supported are numbers, decimals, strings, binary, booleans, dates, timestamps and "
        "day-time intervals; first, last, max_by, collect_list, joins and dedup carry any type",
    )


def carried_type(kind: T.DataType, where: str, *, is_key: bool = False) -> str:
    """The state type that carries `kind` as it is: packed, if no other holds it."""
    name = _plain(kind)
    if name is not None:
        return name
    if is_key and (unequal := _without_equality(kind)) is not None:
        raise QueryError(
            f"{where} has the type {kind.simpleString()}: values of {unequal.simpleString()} are no keys",
            hint="take a part of it as the key, F.array_sort(F.map_entries(…)) of a map, "
            "or F.col(…).cast('string') of a collated string",
        )
    return packed_type(kind.simpleString())


def _plain(kind: T.DataType) -> str | None:
    """The state type with the values of `kind`; None if there is none."""
    if isinstance(kind, T.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, T.StringType) and kind.collation != "UTF8_BINARY":
        return None
    return _STATE.get(type(kind))


def _without_equality(kind: T.DataType) -> T.DataType | None:
    """The part of a type whose equal values can have unequal bytes."""
    if isinstance(kind, T.ArrayType):
        return _without_equality(kind.elementType)
    if isinstance(kind, T.StructType):
        parts = (_without_equality(field.dataType) for field in kind.fields)
        return next((part for part in parts if part is not None), None)
    if isinstance(kind, T.StringType):
        return None if kind.collation == "UTF8_BINARY" else kind
    return kind if isinstance(kind, _WITHOUT_EQUALITY) else None


def spark_type(name: str) -> T.DataType:
    """The Spark type of a state type on the wire."""
    if is_packed(name):
        return T.BinaryType()
    kind = _SPARK.get(name)
    return kind() if kind else T.DecimalType(*decimal_parts(name))


def sum_type(kind: T.DataType) -> T.DataType:
    """The type that Spark adds values of `kind` in."""
    if isinstance(kind, _INTEGRAL):
        return T.LongType()
    return average_type(kind)


def average_type(kind: T.DataType) -> T.DataType:
    """The type that Spark adds values of `kind` in on the way to their mean."""
    if isinstance(kind, T.DecimalType):
        return T.DecimalType(min(kind.precision + 10, _DECIMAL_DIGITS_MAX), kind.scale)
    if isinstance(kind, T.DayTimeIntervalType):
        return T.DayTimeIntervalType()
    return T.DoubleType()
