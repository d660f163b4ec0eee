"""What changed between two versions of an operator: inserts, updates and deletes, in bounded memory.

Both versions are read range by range and compared there. A state row is the same one while its key and the
start of its window are; kept rows never change, so they are inserted and deleted only.
Threads: any number may read one object; every read opens its own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.inspect.forms import without_marks
from headrace.inspect.partition import PartitionState, ranges
from headrace.inspect.rows import Between
from headrace.inspect.shown.batches import state_columns, state_schema
from headrace.inspect.shown.columns import as_table, schema_of
from headrace.inspect.table import StateTable
from headrace.plan.spec import HASH, WINDOW_START, Field, Fold, OperatorSpec
from headrace.row.arrays import I64
from headrace.row.chunks import SCAN_ROWS
from headrace.row.layout import RowLayout
from headrace.store.rows.arrow import probe_of
from headrace.store.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

CHANGE = "change"
KINDS = ("insert", "update", "delete")
_Part = tuple[str, pa.RecordBatch]  # a kind, and rows as wire columns


@dataclass(frozen=True)
class Changes:
    """The changes from one table to a later one of the same operator; a delete has the row as it was.

    Examples
    --------
    >>> import headrace.inspect
    >>> state = headrace.inspect.open(checkpoint)
    >>> changes = state.changes("totals", from_version=0, to_version=1).to_pandas()
    >>> changes.sort_values("user").values.tolist()
    [['update', 'ann', 3, 13.0], ['insert', 'eve', 1, 16.0]]
    """

    before: StateTable
    after: StateTable

    @cached_property
    def _name(self) -> str:
        names, name = {column.name.casefold() for column in self.after.columns}, CHANGE
        while name in names:
            name = f"_{name}"
        return name

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.after.columns).insert(0, pa.field(self._name, pa.string()))

    def partition_batches(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The changes of one partition."""
        with self.before.open_partition(partition) as old, self.after.open_partition(partition) as new:
            for kind, batch in changes_between(old, new):
                for kept in self.after.selection.kept(batch):
                    rows = as_table(self.after.columns, without_marks(self.after.spec, kept))
                    kinds = pa.array([kind]).take(pa.array(np.zeros(len(rows), np.int64)))
                    yield pa.RecordBatch.from_arrays([kinds, *rows.columns], schema=self.schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All changes, a few thousand at a time."""
        for partition in self.after.partitions:
            yield from self.partition_batches(partition)

    def to_arrow(self) -> pa.Table:
        """All changes as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All changes as a pandas frame."""
        return self.to_arrow().to_pandas()


def changes_between(old: PartitionState, new: PartitionState) -> Iterator[_Part]:
    """The changes of one partition, range by range."""
    if old.rows.by_time != new.rows.by_time:  # state moved to another layout in between
        yield from compared(old.spec, _whole(old), _whole(new))
        return
    live_old, live_new = set(old.rows.sections()), set(new.rows.sections())
    for section in sorted(live_old | live_new):
        sides = [
            (state, state.rows.sources(section)) if section in live else None
            for state, live in ((old, live_old), (new, live_new))
        ]
        for low, high in ranges([side[1] for side in sides if side is not None], SCAN_ROWS):
            before, after = (
                _empty(old.spec) if side is None else side[0].rows.read(section, Between(low, high))
                for side in sides
            )
            yield from compared(old.spec, before, after)
        for side in sides:
            if side is not None:
                side[0].release(section)


def _whole(state: PartitionState) -> pa.RecordBatch:
    """All rows of a partition as one batch."""
    batches = [
        state.rows.read(section, Between(low, high))
        for section in state.rows.sections()
        for low, high in ranges([state.rows.sources(section)], SCAN_ROWS)
    ]
    return pa.concat_batches(batches) if batches else _empty(state.spec)


def _empty(spec: OperatorSpec) -> pa.RecordBatch:
    schema = state_schema(spec)
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def compared(spec: OperatorSpec, before: pa.RecordBatch, after: pa.RecordBatch) -> list[_Part]:
    """The changes between two sets of state rows; batches without rows are left out."""
    table, batches = Table(_identity(spec)), (before, after)
    ids = [table.upsert(probe_of(table.layout, batch))[0] for batch in batches]
    counts = [np.bincount(of_row, minlength=len(table)) for of_row in ids]
    more = counts[1] - counts[0]
    inserted = _copies(ids[1], more)
    deleted = _copies(ids[0], -more)
    parts = [("insert", after.take(pa.array(inserted))), ("delete", before.take(pa.array(deleted)))]
    if not spec.work.keeps_rows:
        parts.append(("update", _updated(spec, before, after, ids, len(table))))
    return [(kind, batch) for kind, batch in parts if batch.num_rows]


def _copies(of_row: I64, copies: I64) -> I64:
    """Of each identity that many of its rows."""
    order = np.argsort(of_row, kind="stable")
    ordered = of_row[order]
    first = np.searchsorted(ordered, ordered, "left")
    rank = np.arange(len(ordered)) - first
    return np.sort(order[rank < copies[ordered]])


def _updated(
    spec: OperatorSpec, before: pa.RecordBatch, after: pa.RecordBatch, ids: Sequence[I64], identities: int
) -> pa.RecordBatch:
    at = np.full(identities, -1, np.int64)
    at[ids[0]] = np.arange(before.num_rows)
    old_row = at[ids[1]]
    both = np.flatnonzero(old_row >= 0)
    old, new = before.take(pa.array(old_row[both])), after.take(pa.array(both))
    same = {HASH, *(field.name for field in _identity(spec).spec.keys)}
    values = [name for name in new.schema.names if name not in same]
    if not values or not new.num_rows:
        return new.slice(0, 0)
    return new.filter(reduce(pc.or_, [_differs(old.column(name), new.column(name)) for name in values]))


def _differs(left: pa.Array, right: pa.Array) -> pa.Array:
    """Where two columns differ; nulls are equal, and so are NaNs."""
    differs = pc.fill_null(pc.not_equal(left, right), False)
    if pa.types.is_floating(left.type):
        both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
        differs = pc.and_(differs, pc.invert(pc.fill_null(both_nan, False)))
    return pc.or_(differs, pc.xor(pc.is_null(left), pc.is_null(right)))


def _identity(spec: OperatorSpec) -> RowLayout:
    """The layout of what makes two state rows the same one."""
    columns = [(name, kind) for name, kind in state_columns(spec) if name != HASH]
    if not spec.work.keeps_rows:
        names = {*(field.name for field in spec.keys), WINDOW_START}
        columns = [(name, kind) for name, kind in columns if name in names]
    fields = tuple(Field(name, kind) for name, kind in columns)
    return RowLayout(replace(spec, keys=fields, work=Fold(), shown=()))
