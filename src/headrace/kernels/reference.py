"""The plain meaning of the kernels, in Python and NumPy, for tests to compare with.

Values are Python's: int for integers, times and durations, float, Decimal, str, bytes, bool, None for null.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from headrace.plan.spec import Accumulator
from headrace.plan.types import decimal_parts, is_decimal
from headrace.row.arrays import U8, U64, Ids
from headrace.row.layout import LENGTH_BITS, LENGTH_MAX

Timed = tuple[int | None, Any]


def value_at(word: int, heap: U8) -> bytes:
    """The bytes that a variable word points at."""
    start, size = int(word) >> LENGTH_BITS, int(word) & LENGTH_MAX
    return heap[start : start + size].tobytes()


def by_hash(hashes: U64) -> Ids:
    """`order.by_hash`."""
    return np.argsort(hashes, kind="stable")


def gather(rows: U64, heap: U8, ids: Sequence[int], variable: Sequence[int]) -> tuple[U64, bytes]:
    """`order.take`, then `order.repack`: rows with variable words that point into their own heap."""
    out, packed = rows[list(ids)].copy(), b""
    for row in out:
        for word in variable:
            value = value_at(row[word], heap)
            row[word] = (len(packed) << LENGTH_BITS | len(value)) if value else 0
            packed += value
    return out, packed


def upsert(row_of: dict[Hashable, int], keys: Iterable[Hashable]) -> tuple[list[int], list[int]]:
    """`table.upsert`: the row of each key in order of first appearance, and the new rows."""
    before = len(row_of)
    ids = [row_of.setdefault(key, len(row_of)) for key in keys]
    return ids, list(range(before, len(row_of)))


def wide(low: int, high: int) -> int:
    """The integer of two words."""
    value = high << 64 | low
    return value - (1 << 128) if value >> 127 else value


def rank(value: Any) -> Any:
    """The sort key of a value in Spark's order: NaN last, both zeros equal, strings by their bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def fold(accumulator: Accumulator, rows: Sequence[Timed]) -> Any:
    """The result of an accumulator over (time, value) pairs in their order.

    Raises OverflowError where a sum must fail.
    """
    values = [value for _, value in rows if value is not None]
    if accumulator.kind == "count":
        return len(rows) if accumulator.input is None else len(values)
    if accumulator.kind == "sum":
        return add_up(accumulator, values)
    if accumulator.kind == "moments":
        return moments(values)
    if accumulator.kind in ("first", "last"):
        return by_time(accumulator, [(time, value) for time, value in rows if time is not None])
    if not values:
        return None
    return (max if accumulator.kind == "max" else min)(values, key=rank)


def by_time(accumulator: Accumulator, rows: Sequence[tuple[int, Any]]) -> Any:
    """`accumulate.by_time`: null counts as the smallest value of its time."""
    if not rows:
        return None
    choose = max if accumulator.kind == "last" else min
    return choose(rows, key=lambda row: (row[0], () if row[1] is None else (rank(row[1]),)))[1]


def add_up(accumulator: Accumulator, values: Sequence[Any]) -> Any:
    """`accumulate.sum_int`, `sum_double` and `sum_decimal`."""
    if not values:
        return None
    if accumulator.type == "double":
        return _plain_sum(values)
    if is_decimal(accumulator.type):
        precision, scale = decimal_parts(accumulator.type)
        total = _bounded(accumulator, [_unscaled(value, scale) for value in values], 10**precision)
        return None if total is None else scaled(total, scale)
    overflow = "error" if accumulator.type == "duration" else accumulator.overflow
    if overflow == "wrap":
        return (sum(values) + (1 << 63)) % (1 << 64) - (1 << 63)
    return _bounded(accumulator, values, 1 << 63)


def moments(values: Sequence[float]) -> tuple[float, float, float]:
    """`accumulate.moments`: n, mean, sum of squared deviations; exact for finite values."""
    if not values:
        return 0.0, 0.0, 0.0
    if not all(map(math.isfinite, values)):
        return float(len(values)), _running_mean(values), math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    return float(len(exact)), float(mean), float(sum(((x - mean) ** 2 for x in exact), Fraction(0)))


def scaled(value: int, scale: int) -> Decimal:
    """The decimal with these digits."""
    with localcontext() as context:
        context.prec = 100
        return Decimal(value).scaleb(-scale)


def _unscaled(value: Decimal, scale: int) -> int:
    with localcontext() as context:
        context.prec = 100
        return int(value.scaleb(scale))


def _running_mean(values: Sequence[float]) -> float:
    """The mean in Spark's steps: with infinite values the order matters."""
    mean = 0.0
    for n, value in enumerate(values, 1):
        mean += (value - mean) / n
    return mean


def _plain_sum(values: Sequence[float]) -> float:
    # `sum` compensates rounding errors from Python 3.12 on; Spark does not.
    total = 0.0
    for value in values:
        total += value
    return total


def _bounded(accumulator: Accumulator, values: Sequence[int], limit: int) -> int | None:
    """A sum that becomes null, or an error, as soon as it exceeds its type."""
    total = 0
    for value in values:
        total += value
        # Two's complement has one more value below zero than above; decimals are symmetric.
        lowest = -limit if limit == 1 << 63 else 1 - limit
        if not lowest <= total < limit:
            if accumulator.overflow == "null" and accumulator.type != "duration":
                return None
            raise OverflowError(accumulator.type)
    return total
