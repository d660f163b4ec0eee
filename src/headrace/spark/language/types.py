"""Spark's types and the state types that carry them.

`state_type` says which state type holds a Spark type, or raises and names the type that none can hold.
`spark_type` is the Spark type in which a state type crosses the wire: the JVM casts to it on the way in,
and back to the user's own type on the way out.
"""

from __future__ import annotations

from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.types import decimal_parts

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
_DECIMAL_DIGITS_MAX = 38


def state_type(kind: T.DataType, where: str) -> str:
    """The state type that holds `kind`; `where` names the column in the error when none does."""
    if isinstance(kind, T.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, T.StringType) and kind.collation != "UTF8_BINARY":
        raise QueryError(
            f"{where} has the type {kind.simpleString()}: collated strings cannot be kept in state",
            hint=f"compare bytes instead: cast it, as in F.col(…).cast('string'), or drop {kind.collation}",
        )
    name = _STATE.get(type(kind))
    if name is None:
        raise QueryError(
            f"{where} has the type {kind.simpleString()}, which cannot be kept in state",
            hint="supported are numbers, decimals, strings, binary, booleans, dates, timestamps, "
            "day-time intervals, and as keys structs of these",
        )
    return name


def spark_type(name: str) -> T.DataType:
    """The Spark type of a state type on the wire."""
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
