"""Packed values with their own types: Spark's row format with one column, read without Spark. Pure.

    row     null bits · a word per field · data            word of a long value = offset << 32 | size
    array   count · null bits · elements · data            offsets are from the row's or the array's begin
    map     size of the keys · array of keys · array of values

A type that is not known here, such as one of the user, shows its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from struct import unpack_from
from typing import Any

import pyarrow as pa

from headrace.plan.types import packed_of

_WORD = 8
_INSTANT = pa.timestamp("us", tz="UTC")
_FIXED = {
    "boolean": ("<?", 1, pa.bool_()),
    "tinyint": ("<b", 1, pa.int8()),
    "smallint": ("<h", 2, pa.int16()),
    "int": ("<i", 4, pa.int32()),
    "bigint": ("<q", 8, pa.int64()),
    "float": ("<f", 4, pa.float32()),
    "double": ("<d", 8, pa.float64()),
    "date": ("<i", 4, pa.date32()),
    "timestamp": ("<q", 8, _INSTANT),
    "timestamp_ntz": ("<q", 8, pa.timestamp("us")),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DAYS = re.compile(r"interval (day|hour|minute|second)")
_LONG_DIGITS = 18  # a decimal of more digits is no long
_VARIANT = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
Load = Callable[[bytes, int, int], Any]  # bytes, place of the value or its word, begin of its row or array


class _Unknown(ValueError):
    """A type that is not known here."""


@dataclass(frozen=True)
class Kind:
    """A type: what Arrow calls it, its bytes as an element of an array, and how a value is read."""

    arrow: pa.DataType
    width: int
    load: Load


@lru_cache(maxsize=256)
def packed_kind(state_type: str) -> Kind | None:
    """The type of packed values; None if it is not known here."""
    try:
        kind, rest = _parsed(packed_of(state_type))
    except _Unknown:
        return None
    return None if rest else kind


def unpacked(values: pa.Array, kind: Kind) -> pa.Array:
    """Packed values as values of their type."""
    row = _row([kind])
    loaded = [None if one is None else row(one, 0)[0] for one in values.to_pylist()]
    return pa.array(loaded, kind.arrow)


# ── types ────────────────────────────────────────────────────────────────────────────────────


def _parsed(text: str) -> tuple[Kind, str]:
    """The type that a text begins with, and the rest of the text."""
    for name, parse in (("array<", _array_of), ("map<", _map_of), ("struct<", _struct_of)):
        if text.startswith(name):
            return parse(text[len(name) :])
    decimal = _DECIMAL.match(text)
    name = decimal[0] if decimal else re.split("[,>]", text, maxsplit=1)[0]
    return _simple(name), text[len(name) :]


def _after(text: str, sign: str) -> str:
    if not text.startswith(sign):
        raise _Unknown(text)
    return text[len(sign) :]


def _array_of(text: str) -> tuple[Kind, str]:
    item, rest = _parsed(text)
    return _long(pa.list_(item.arrow), _array(item)), _after(rest, ">")


def _map_of(text: str) -> tuple[Kind, str]:
    key, rest = _parsed(text)
    value, rest = _parsed(_after(rest, ","))
    keys, values = _array(key), _array(value)

    def load(data: bytes, start: int, size: int) -> list[tuple[Any, Any]]:
        (length,) = unpack_from("<q", data, start)
        begin = start + _WORD
        return list(zip(keys(data, begin, 0), values(data, begin + length, 0), strict=True))

    return _long(pa.map_(key.arrow, value.arrow), load), _after(rest, ">")


def _struct_of(text: str) -> tuple[Kind, str]:
    names, kinds, rest = [], [], text
    while not rest.startswith(">"):
        name, colon, rest = rest.partition(":")
        if not colon:
            raise _Unknown(text)
        kind, rest = _parsed(rest)
        names.append(name)
        kinds.append(kind)
        rest = _after(rest, ",") if not rest.startswith(">") else rest
    row = _row(kinds)
    arrow = pa.struct([pa.field(name, kind.arrow) for name, kind in zip(names, kinds, strict=True)])
    return _long(arrow, lambda data, at, size: dict(zip(names, row(data, at), strict=True))), rest[1:]


def _simple(name: str) -> Kind:
    if name in _FIXED:
        form, width, arrow = _FIXED[name]
        return Kind(arrow, width, lambda data, at, begin: unpack_from(form, data, at)[0])
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return _decimal(int(decimal[1]), int(decimal[2]))
    if name == "string" or name.startswith("string collate"):
        return _long(pa.string(), lambda data, at, size: data[at : at + size].decode())
    if name == "binary":
        return _long(pa.binary(), lambda data, at, size: data[at : at + size])
    if name == "variant":
        return _long(_VARIANT, _variant)
    if name == "void":
        return Kind(pa.null(), _WORD, lambda data, at, begin: None)
    if _DAYS.match(name):
        return Kind(pa.duration("us"), _WORD, lambda data, at, begin: unpack_from("<q", data, at)[0])
    raise _Unknown(name)


def _decimal(precision: int, scale: int) -> Kind:
    arrow = pa.decimal128(precision, scale)
    if precision <= _LONG_DIGITS:
        return Kind(
            arrow, _WORD, lambda data, at, begin: Decimal(unpack_from("<q", data, at)[0]).scaleb(-scale)
        )

    def load(data: bytes, at: int, size: int) -> Decimal:
        digits = str(int.from_bytes(data[at : at + size], "big", signed=True))
        return Decimal(f"{digits}E-{scale}")

    return _long(arrow, load)


# ── values ───────────────────────────────────────────────────────────────────────────────────


def _long(arrow: pa.DataType, load: Callable[[bytes, int, int], Any]) -> Kind:
    """A type whose word has the place and the size of its value."""

    def at_word(data: bytes, at: int, begin: int) -> Any:
        (word,) = unpack_from("<Q", data, at)
        return load(data, begin + (word >> 32), word & 0xFFFFFFFF)

    return Kind(arrow, _WORD, at_word)


def _row(kinds: list[Kind]) -> Callable[[bytes, int], list[Any]]:
    first = (len(kinds) + 63) // 64 * _WORD

    def load(data: bytes, begin: int) -> list[Any]:
        return [
            None if _is_null(data, begin, at) else kind.load(data, begin + first + _WORD * at, begin)
            for at, kind in enumerate(kinds)
        ]

    return load


def _array(item: Kind) -> Callable[[bytes, int, int], list[Any]]:
    def load(data: bytes, begin: int, size: int) -> list[Any]:
        (count,) = unpack_from("<q", data, begin)
        first = begin + _WORD + (count + 63) // 64 * _WORD
        return [
            None if _is_null(data, begin + _WORD, at) else item.load(data, first + item.width * at, begin)
            for at in range(count)
        ]

    return load


def _is_null(data: bytes, bits: int, at: int) -> bool:
    return bool(data[bits + at // 8] >> at % 8 & 1)


def _variant(data: bytes, at: int, size: int) -> dict[str, bytes]:
    (length,) = unpack_from("<i", data, at)
    return {"value": data[at + 4 : at + 4 + length], "metadata": data[at + 4 + length : at + size]}
