"""Putting the values of groups into order: keys that compare as Spark compares values, rows by group.

An order key is an unsigned word whose order is that of the values: Spark's, with NaN above all numbers and
-0.0 equal to 0.0. Strings and decimals have no such word; their key is the rank among the chunk's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from headrace.kernels.groups.group import sort_rows
from headrace.plan.types import is_decimal, is_variable
from headrace.row.arrays import I64, U64, Flags
from headrace.row.run import Run
from headrace.store.rows.arrow import array_of
from headrace.store.rows.groups import Groups
from headrace.store.rows.kept_layout import InputSlot, KeptLayout, time_key, times_in, valid_in
from headrace.store.settled.open_rows import markers

_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Values:
    """One input of a chunk: order keys, and which rows have a value."""

    slot: InputSlot
    keys: U64
    valid: Flags

    @classmethod
    def of(cls, slot: InputSlot, rows: Run) -> Values:
        valid = valid_in(rows, slot.null_word, slot.null_bit)
        return cls(slot, order_keys(slot, rows, valid), valid)


@dataclass(frozen=True)
class Sorted:
    """Row numbers by group; group g has those in `[offsets[g], offsets[g + 1])`."""

    rows: I64
    offsets: I64

    @property
    def counts(self) -> I64:
        return np.diff(self.offsets)

    @property
    def groups(self) -> I64:
        """The group of each row number."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    def where(self, mask: Flags) -> Sorted:
        """Only some of the row numbers."""
        before = np.concatenate([[0], np.cumsum(mask)])
        return Sorted(self.rows[mask], before[self.offsets])


def order_keys(slot: InputSlot, rows: Run, valid: Flags) -> U64:
    """The order key of each row's value; of a null it is anything."""
    kind = slot.field.type
    if is_variable(kind) or is_decimal(kind):
        ranks = pc.rank(array_of(kind, rows.words, slot.word, rows.heap, valid), tiebreaker="dense")
        return np.ascontiguousarray(ranks.to_numpy(), np.uint64)
    column = np.ascontiguousarray(rows.words[:, slot.word])
    if kind == "double":
        return _float_keys(column.view(np.float64))
    if kind == "float":
        return _float_keys(column.astype(np.uint32).view(np.float32).astype(np.float64))
    return column if kind == "bool" else column ^ _SIGN


def _float_keys(numbers: np.ndarray) -> U64:
    """IEEE bits in order: negative numbers reversed below positive ones."""
    plain = np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # one NaN, and no negative zero
    bits = plain.view(np.uint64)
    return np.where(bits & _SIGN != 0, ~bits, bits | _SIGN)


def sort_groups(groups: Groups, keys: Sequence[U64], taking: Flags | None = None) -> Sorted:
    """The rows of each group, sorted by keys, the last key first in importance."""
    if taking is None or taking.all():
        return Sorted(*sort_rows(groups.of_row, len(groups), np.arange(len(groups.of_row)), _stacked(keys)))
    rows = np.flatnonzero(taking)
    of_row, stacked = groups.of_row[rows], _stacked([key[rows] for key in keys])
    order, offsets = sort_rows(of_row, len(groups), np.arange(len(rows)), stacked)
    return Sorted(rows[order], offsets)


def _stacked(keys: Sequence[U64]) -> U64:
    return np.stack(keys) if keys else np.empty((0, 0), np.uint64)


def distinct(order: Sorted, keys: U64) -> Flags:
    """Which rows of an order begin a new value; rows are sorted by the keys within their group."""
    values, groups = keys[order.rows], order.groups
    begins = np.ones(len(values), np.bool_)
    begins[1:] = (values[1:] != values[:-1]) | (groups[1:] != groups[:-1])
    return begins


def settled_order(layout: KeptLayout, rows: Run) -> Sequence[U64]:
    """Keys of rows in windows over rows in their order, the most important last: time, marker, columns."""
    window = layout.spec.window
    assert window is not None
    keys: list[U64] = []
    for slot in reversed(layout.inputs):
        values = Values.of(slot, rows)
        keys += [np.where(values.valid, values.keys, np.uint64(0)), values.valid.astype(np.uint64)]
    keys.append(markers(layout, window, rows).astype(np.uint64))
    keys.append(time_key(times_in(layout, rows).view(np.uint64)))
    return keys
