"""Results of accumulators as Spark computes them: averages, variances. Arrow in, Arrow out.

Decimals are divided exactly and rounded half up, as Spark does; doubles by one division.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.coupons import STEPS, curve
from headrace.plan.shown import ShownKind
from headrace.plan.types import arrow_type, decimal_parts, is_decimal

_DIGITS = 60  # more than two decimals of 38 digits need to divide exactly enough


def finalised(kind: ShownKind, parts: list[pa.Array], result: str) -> pa.Array:
    """The result of an aggregate from the parts of its accumulators."""
    if kind == "average":
        return _average(parts[0], parts[1], result)
    if kind == "net_count":
        return pc.fill_null(parts[0], 0)
    if kind in ("net_sum", "net_average"):
        return _net(kind, parts, result)
    n, m2 = (np.asarray(part.to_numpy(zero_copy_only=False), np.float64) for part in (parts[0], parts[2]))
    degrees = n - 1 if kind.endswith("samp") else n
    valid = degrees > 0
    variance = np.divide(m2, degrees, out=np.zeros_like(m2), where=valid)
    return pa.array(np.sqrt(variance) if kind.startswith("stddev") else variance, mask=~valid)


def estimates(coupons: pa.Array, buckets: int) -> pa.Array:
    """The number of values that have drawn so many different coupons, as the query estimates it."""
    points = np.array(curve())
    place = np.minimum(np.asarray(coupons, np.float64) / buckets * STEPS, len(points) - 2)
    low = np.floor(place).astype(np.int64)
    logs = points[low] + (points[low + 1] - points[low]) * (place - low)
    return pa.array(np.floor(np.expm1(logs) * buckets + 0.5).astype(np.int64))


def _net(kind: ShownKind, parts: list[pa.Array], result: str) -> pa.Array:
    """A sum or an average of what a changelog has left."""
    total, number = parts[0], pc.fill_null(parts[1], 0)
    if len(parts) > 2:
        nans, ups, downs = (pc.greater(pc.fill_null(part, 0), 0) for part in parts[2:])
        infinite = float("inf")
        total = pc.if_else(downs, -infinite, total)
        total = pc.if_else(ups, infinite, total)
        total = pc.if_else(pc.or_(nans, pc.and_(ups, downs)), float("nan"), total)
    if kind == "net_average":
        return _average(total, number, result)
    return pc.if_else(pc.greater(number, 0), total.cast(arrow_type(result)), None)


def _average(total: pa.Array, count: pa.Array, result: str) -> pa.Array:
    counts = np.asarray(count.to_numpy(zero_copy_only=False), np.int64)
    if is_decimal(result):
        return _decimal_average(total, counts, result)
    valid = pc.and_(pc.greater(count, 0), pc.is_valid(total))
    if result == "duration":
        return _whole_average(total, counts, valid)
    quotient = pc.divide(total.cast(pa.float64()), pc.if_else(valid, count, 1).cast(pa.float64()))
    return pc.if_else(valid, quotient, None).cast(arrow_type(result))


def _whole_average(total: pa.Array, counts: np.ndarray[Any, Any], valid: pa.Array) -> pa.Array:
    """Microseconds by rows, rounded half up away from zero."""
    micros = pc.fill_null(total.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    by = np.maximum(counts, 1)
    rounded = np.sign(micros) * ((2 * np.abs(micros) + by) // (2 * by))
    return pc.if_else(valid, pa.array(rounded, pa.int64()), None).cast(pa.duration("us"))


def _decimal_average(total: pa.Array, counts: np.ndarray[Any, Any], result: str) -> pa.Array:
    precision, scale = decimal_parts(result)
    unit, limit = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)
    with localcontext() as context:
        context.prec = _DIGITS
        means = [
            None if value is None or not count else (value / count).quantize(unit, ROUND_HALF_UP)
            for value, count in zip(total.to_pylist(), counts.tolist(), strict=True)
        ]
        fitting = [mean if mean is None or abs(mean) < limit else None for mean in means]
    return pa.array(fitting, arrow_type(result))
