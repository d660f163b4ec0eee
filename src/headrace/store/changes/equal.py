"""Whether rows of two Arrow batches are equal, column by column. Pure functions.

Null equals null, and NaN equals NaN. Both zeros are equal. Lists are equal if their values are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.row.arrays import Flags


def equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> Flags:
    """Which rows of two batches of one schema are equal; both have the same number of rows."""
    same: Flags = np.ones(left.num_rows, np.bool_)
    for ours, theirs in zip(left.columns, right.columns, strict=True):
        same &= _equal(ours, theirs)
    return same


def _equal(left: pa.Array, right: pa.Array) -> Flags:
    nulls = _flags(left.is_null()), _flags(right.is_null())
    same: Flags = nulls[0] == nulls[1]
    both = same & ~nulls[0]
    if not both.any():
        return same
    if pa.types.is_list(left.type):
        values = _equal_lists(left, right, both)
    elif pa.types.is_struct(left.type):
        fields = [_equal(a, b) for a, b in zip(left.flatten(), right.flatten(), strict=True)]
        values = np.logical_and.reduce(fields) if fields else np.ones(len(left), np.bool_)
    elif pa.types.is_map(left.type):
        values = _equal_lists(_entries(left), _entries(right), both)
    else:
        values = _flags(pc.fill_null(pc.equal(left, right), False))
        if pa.types.is_floating(left.type):
            nans = [_flags(pc.fill_null(pc.is_nan(one), False)) for one in (left, right)]
            values = values | (nans[0] & nans[1])
    both_equal: Flags = same & (nulls[0] | values)
    return both_equal


def _equal_lists(left: pa.Array, right: pa.Array, both: Flags) -> Flags:
    """Lists of equal length whose values are equal; only rows of `both` are read."""
    lengths = [np.asarray(pc.fill_null(pc.list_value_length(one), 0)) for one in (left, right)]
    same: Flags = both & (lengths[0] == lengths[1])
    at = np.flatnonzero(same)
    parts = [one.take(pa.array(at)) for one in (left, right)]
    values = [part.flatten() for part in parts]
    different = np.zeros(len(left), np.bool_)
    unequal = ~_equal(values[0], values[1])
    different[np.repeat(at, lengths[0][at])[unequal]] = True
    return same & ~different


def _entries(maps: pa.Array) -> pa.Array:
    """A map as a list of its entries."""
    kind = pa.list_(pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)]))
    return maps.cast(kind)


def _flags(array: pa.Array) -> Flags:
    flags: Flags = np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)
    return flags
