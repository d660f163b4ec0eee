"""Schemas written as text, parsed without Spark: `"user string, total decimal(10,2), tags array<string>"`.

A Spark session parses more; this parser covers the types that state values may have.
"""

from __future__ import annotations

import re

from pyspark.sql import types as T

from headrace.errors import QueryError

_SIMPLE: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "byte": T.ByteType(),
    "tinyint": T.ByteType(),
    "short": T.ShortType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "integer": T.IntegerType(),
    "long": T.LongType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "real": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
HINT = 'write it as a StructType, or as text such as "user string, total double"'


def struct_of(text: str) -> T.StructType:
    """The struct of a schema in text."""
    fields = [_field(part, " ") for part in _parts(text)]
    if not fields:
        raise QueryError(f"{text!r} has no columns", hint=HINT)
    return T.StructType(fields)


def _field(text: str, separator: str) -> T.StructField:
    name, separated, kind = text.strip().partition(separator)
    kind = kind.strip()
    nullable = not kind.lower().endswith("not null")
    if not separated or not kind:
        raise QueryError(f"{text!r} is not a column and its type", hint=HINT)
    return T.StructField(name.strip().strip("`"), type_of(kind if nullable else kind[:-8]), nullable)


def type_of(text: str) -> T.DataType:
    """The type of a name such as `array<int>`."""
    kind = text.strip()
    lowered = kind.lower()
    if lowered in _SIMPLE:
        return _SIMPLE[lowered]
    decimal = _DECIMAL.fullmatch(lowered)
    if decimal is not None:
        return T.DecimalType(int(decimal[1] or 10), int(decimal[2] or 0))
    for name in ("array", "map", "struct"):
        if lowered.startswith(f"{name}<") and lowered.endswith(">"):
            return _nested(name, kind[len(name) + 1 : -1])
    raise QueryError(f"{text!r} is not a type of state values", hint=HINT)


def _nested(name: str, inner: str) -> T.DataType:
    parts = _parts(inner)
    if name == "array" and len(parts) == 1:
        return T.ArrayType(type_of(parts[0]))
    if name == "map" and len(parts) == 2:
        return T.MapType(type_of(parts[0]), type_of(parts[1]))
    if name == "struct":
        return T.StructType([_field(part, ":" if ":" in part.split("<")[0] else " ") for part in parts])
    raise QueryError(f"{name}<{inner}> has {len(parts)} types", hint=HINT)


def _parts(text: str) -> list[str]:
    """The text cut at commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part for part in (*parts, text[start:]) if part.strip()]
