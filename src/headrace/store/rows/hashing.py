"""The hash of key columns as Spark's xxhash64 gives it, for keys that do not come from Spark's plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.core.spark_hash import SEED, add_heap, add_wide, add_words
from headrace.plan.types import FLOATING, decimal_parts, is_decimal, is_variable
from headrace.row.arrays import U64
from headrace.store.rows.arrow import column_of

_NARROW = frozenset({"bool", "int8", "int16", "int32", "date", "float"})
_LONG_DIGITS = 18


def hashes_of(columns: Sequence[tuple[pa.Array, str]], rows: int) -> U64:
    """Spark's hash of rows of normalised key columns, each given with its state type."""
    hashes: U64 = np.full(rows, SEED, np.uint64)
    for array, kind in columns:
        column = column_of(array, kind)
        first = np.ascontiguousarray(column.words[:, 0])
        if is_variable(kind):
            add_heap(hashes, first, column.heap, column.valid)
        elif is_decimal(kind) and decimal_parts(kind)[0] > _LONG_DIGITS:
            add_wide(hashes, first, np.ascontiguousarray(column.words[:, 1]), column.valid)
        else:
            add_words(hashes, first, column.valid, kind in _NARROW)
    return hashes


def normalised(array: pa.Array, kind: str) -> pa.Array:
    """A key column by Spark's rule for floats: all NaNs are one, and -0.0 is 0.0."""
    if kind not in FLOATING:
        return array
    zero, nan = pa.scalar(0.0, array.type), pa.scalar(float("nan"), array.type)
    array = pc.if_else(pc.equal(array, zero), zero, array)
    return pc.if_else(pc.is_nan(array), nan, array)
