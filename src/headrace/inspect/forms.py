"""Which form the state of an operator has, and which rows its table shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from headrace.inspect.changing import BagTableRows, LivingRows
from headrace.inspect.rows import (
    CellRows,
    FoldRows,
    Held,
    KeptRows,
    OrderedRows,
    SessionKept,
    SessionRows,
    StateRows,
)
from headrace.plan.spec import Grouped, OperatorSpec
from headrace.plan.window import kind_of
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.changes.top import Top
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.store.adaptive.migrate import layout_at
from headrace.store.base.files import of_kind
from headrace.store.cells.rows import cell_spec
from headrace.store.distinct.store import GROUPS
from headrace.store.segments.reader import Segment


def table_spec(spec: OperatorSpec) -> OperatorSpec:
    """The operator whose rows the table has: itself, or one that stores what the table shows.

    A processor shows cells of bytes, distinct values show their groups, a top-N shows the rows of its keys.
    """
    if isinstance(spec.work, Distinct):
        return replace(spec, work=spec.work.inner)
    if isinstance(spec.work, Top):
        shown = tuple(field for field in spec.inputs if field.name != spec.work.sign)
        return replace(_kept(spec), inputs=shown)
    if not spec.work.is_interactive:
        return spec
    cells = cell_spec(spec)
    keys = (*spec.keys, replace(cells.keys[-1], label="cell"))
    return replace(cells, keys=keys, inputs=(replace(cells.inputs[0], label="value"),), shown=())


def without_marks(spec: OperatorSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without those that mark a generation of a static table, which have no key."""
    if not isinstance(spec.work, StreamJoin) or spec.work.generation is None:
        return batch
    return batch.filter(reduce(pc.or_, (pc.is_valid(batch.column(key.name)) for key in spec.keys)))


def _kept(spec: OperatorSpec) -> OperatorSpec:
    """The operator of the rows in the bags of a top-N."""
    return replace(spec, work=Grouped())


def rows_in(
    spec: OperatorSpec, store: str, segments: Sequence[Segment], closed_through_us: int | None
) -> StateRows:
    """The rows of a version; `store` is what its manifest names."""
    if isinstance(spec.work, Distinct):
        segments = of_kind(segments, GROUPS)
    stored = Held(table_spec(spec), segments, closed_through_us)
    if isinstance(spec.work, Top):
        return BagTableRows(stored, spec, _kept(spec))
    if spec.work.is_interactive:
        return CellRows(stored)
    if kind_of(spec.window) == "settled":
        return OrderedRows(stored)
    if spec.window is not None and spec.window.session:
        return SessionKept(stored) if spec.work.keeps_rows else SessionRows(stored)
    if spec.work.keeps_rows:
        return KeptRows(stored, by_time=layout_at(spec, store) == "range")
    return LivingRows(stored) if isinstance(stored.spec.work, Retracting) else FoldRows(stored)
