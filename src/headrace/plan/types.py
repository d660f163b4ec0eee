"""The column types that state can hold, and how many 64-bit words each takes.

A type is written as a short name: `bool int8 int16 int32 int64 date timestamp timestamp_ntz duration
float double string binary decimal(p,s)`. Spark's types map onto these one to one (structs are flattened
in the JVM), and so do Arrow's. A value of any other type is packed into bytes in the JVM; `packed <type>`
names the type that the bytes are of.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

_ARROW: dict[str, Any] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "duration": pa.duration("us"),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"^decimal\((\d+),(-?\d+)\)$")

FLOATING = frozenset({"float", "double"})
_VARIABLE = frozenset({"string", "binary"})
_PACKED = "packed "


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type that carries `name` over the wire."""
    if name in _ARROW:
        return _ARROW[name]
    if is_packed(name):
        return pa.binary()
    precision, scale = decimal_parts(name)
    return pa.decimal128(precision, scale)


def packed_type(of: str) -> str:
    """The state type of values of Spark's type `of` that are packed into bytes."""
    return _PACKED + of


def is_packed(name: str) -> bool:
    return name.startswith(_PACKED)


def packed_of(name: str) -> str:
    """The type of Spark whose values a packed state type has, as `simpleString` writes it."""
    return name.removeprefix(_PACKED)


def is_variable(name: str) -> bool:
    """Whether values are of any length, in a heap beside the rows."""
    return name in _VARIABLE or is_packed(name)


def is_decimal(name: str) -> bool:
    return _DECIMAL.match(name) is not None


def decimal_parts(name: str) -> tuple[int, int]:
    """Precision and scale of a decimal type's name."""
    match = _DECIMAL.match(name)
    if match is None:
        raise ValueError(f"not a state type: {name}")
    return int(match[1]), int(match[2])


def words(name: str) -> int:
    """64-bit words of one value in a state row; strings take one word that points into the heap."""
    return 2 if is_decimal(name) else 1
