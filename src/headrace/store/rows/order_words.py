"""Values as signed words of the same order: what first and last compare if not event times."""

from __future__ import annotations

import numpy as np

from headrace.plan.types import FLOATING
from headrace.row.arrays import U64
from headrace.store.rows.arrow import Column

_MAGNITUDE = np.int64((1 << 63) - 1)


def order_column(column: Column, kind: str) -> Column:
    """The column with words whose signed order is Spark's order of its values; of types of one word."""
    if kind not in FLOATING:
        return column
    return Column(float_words(column.words, kind), column.heap, column.valid)


def float_words(words: U64, kind: str) -> U64:
    """Floats as signed words: one NaN above all numbers, and both zeros equal."""
    flat = np.ascontiguousarray(words).reshape(-1)
    numbers = (
        flat.view(np.float64)
        if kind == "double"
        else flat.astype(np.uint32).view(np.float32).astype(np.float64)
    )
    plain = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
    bits = plain.view(np.int64)
    ordered = np.where(bits < 0, bits ^ _MAGNITUDE, bits)
    return ordered.view(np.uint64).reshape(-1, 1)
