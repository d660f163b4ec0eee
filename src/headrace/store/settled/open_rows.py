"""Rows of open windows: those of one key lie together as one value, and are written again with it.

Rows come in the order of event time, epoch by epoch. Those that complete windows leave with them. A session
with a gap is also complete when the watermark passes the gap behind its last row.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.plan.spec import Accumulator, Fold, OperatorSpec, Window
from headrace.row.arrays import I64, U64, Flags
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.base.files import FileKind
from headrace.store.changes.bag_rows import BagRows, BagShape
from headrace.store.changes.bag_store import BagStore, write_bags
from headrace.store.fold.looking import SliceState
from headrace.store.rows.groups import Groups
from headrace.store.rows.kept_layout import KeptLayout, times_in, valid_in
from headrace.store.rows.slices import WHOLE
from headrace.store.rows.take import rows_at
from headrace.store.settled.cut import cut, in_order, silent_after

OPEN = "open"

# The keys by which rows of a group are ordered, the last one first in importance.
Ordering = Callable[[KeptLayout, Run], Sequence[U64]]


@dataclass(frozen=True)
class Watermarks:
    """Those of the epoch before, and of this one."""

    before_us: int | None
    now_us: int


@dataclass(frozen=True)
class Whole:
    """Rows of complete windows, and the windows as groups."""

    rows: Run
    groups: Groups


def open_spec(spec: OperatorSpec) -> OperatorSpec:
    """The operator whose state rows are the bags of another operator's open windows."""
    bags = Fold((Accumulator("max", "rows", "binary"),))
    return replace(spec, work=bags, window=None, emit="changes", inputs=(), timed=False, shown=())


def open_kind(spec: OperatorSpec) -> FileKind:
    return FileKind(OPEN, RowLayout(open_spec(spec)))


@dataclass
class OpenRows(BagStore):
    """Rows of open windows by key; `kept` is the layout of the rows."""

    kind_name: str = OPEN
    kept: KeptLayout | None = None
    ordering: Ordering | None = None

    def _changing(self, slice_us: int, state: SliceState, row_ids: I64) -> None:
        """Results do not compare bags with those before."""

    def advance(self, due: Run, watermarks: Watermarks) -> Whole:
        """Adds rows that follow those of their keys; returns the windows that are complete.

        Rows that the watermark had passed before name keys whose sessions may be over.
        """
        assert self.kept is not None
        state, shape = self._slice(WHOLE), BagShape(self.kept)
        self._make_room(state, len(due), 2 * len(due.heap) + due.nbytes)
        before = state.table.nbytes
        keys = Run(due.order, np.ascontiguousarray(due.words[:, : self.layout.key_width]), due.heap)
        row_ids, fresh = state.table.upsert(keys)
        if len(fresh):
            state.keys += len(fresh) - self._load(WHOLE, state, fresh)
        touched, of_row = np.unique(row_ids, return_inverse=True)
        stored = state.table.rows_of(touched)
        new = BagRows(due, of_row.astype(np.int64), len(touched))
        if watermarks.before_us is not None:
            new = new.at(np.flatnonzero(times_in(self.kept, due) > watermarks.before_us))
        bags = shape.joined(shape.unpacked(stored, self._word), new)
        made, order, offsets = self._cut(self.kept, bags, watermarks.now_us)
        write_bags(self.layout, state, touched, stored, shape.packed(bags, order, offsets))
        self._table_bytes += state.table.nbytes - before
        return made

    def _cut(self, layout: KeptLayout, bags: BagRows, watermark_us: int) -> tuple[Whole, I64, I64]:
        """Complete windows; then the rows of open ones, by group, and where each group begins."""
        window = layout.spec.window
        assert window is not None
        assert self.ordering is not None
        order, offsets = in_order(bags.of_row, bags.groups, self.ordering(layout, bags.rows))
        lasts = markers(layout, window, bags.rows)[order]
        if window.width_us:
            times = times_in(layout, bags.rows)[order]
            lasts = lasts | silent_after(window.width_us, times, offsets, watermark_us)
        parts = cut(window, order, offsets, lasts)
        rows = rows_at(bags.rows, parts.rows)
        return Whole(rows, _groups(layout, rows, parts.window_of)), parts.kept, parts.kept_offsets


def markers(layout: KeptLayout, window: Window, rows: Run) -> Flags:
    """Which rows end their window."""
    if window.marker is None:
        return np.zeros(len(rows), np.bool_)
    slot = layout.input(window.marker)
    flags: Flags = valid_in(rows, slot.null_word, slot.null_bit) & (rows.words[:, slot.word] != 0)
    return flags


def _groups(layout: KeptLayout, rows: Run, window_of: I64) -> Groups:
    """Windows as groups, from the time of their first row to a microsecond after that of their last one.

    A session that ends without a marker lasts until the gap behind its last row is over.
    """
    begins = np.flatnonzero(np.diff(window_of, prepend=-1))
    lasts = np.append(begins[1:], len(window_of))[: len(begins)] - 1
    of_row = np.repeat(np.arange(len(begins)), lasts - begins + 1)
    times, window = times_in(layout, rows), layout.spec.window
    assert window is not None
    after = np.where(markers(layout, window, rows)[lasts], 1, window.width_us or 1)
    return Groups(of_row, begins, times[begins], times[lasts] + after)
