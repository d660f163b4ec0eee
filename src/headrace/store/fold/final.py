"""The RMW store of windows that come out once: rows are folded without a lookup.

    rows ─▶ fresh tables, one per slice ─▶ (flush) ─▶ segments: what each epoch added
                       ├──────▶ (settle) ─▶ whole tables, as far as memory goes
                       └──────▶ (spill)  ─▶ segments of the running epoch, merged when it is flushed

Nobody sees a value before its window ends, so no row waits for a lookup. What the segments, the whole table
and the fresh table of a slice have of a key is combined when a window over the slice is given out.
Invariants: the segments of a slice, combined in their order, are what was committed of it. A whole table is
the same, where there is one. A fresh table has what the running epoch added since it last spilled.
Threads: one transaction at a time calls in; compaction only reads segments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import ArithmeticOverflow
from headrace.plan.spec import OperatorSpec, Window, rows_in
from headrace.row.chunks import MERGE_ROWS, RESULT_ROWS
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files, Gathered, Sections
from headrace.store.base.jobs import Compaction, Job, Merge, live_sections
from headrace.store.base.room import EVICT_TO, PARTIALS_MAX, evict, fits, make_room, no_growth
from headrace.store.base.share import Share
from headrace.store.fold.panes import Pane, combined, rows_max, summed
from headrace.store.fold.partials import Partials
from headrace.store.rows.arrow import heap_bytes, probe_of, results_of
from headrace.store.rows.slices import closing, cut, is_closed, slices_of, windows_left
from headrace.store.segments.compact import compact, plan_parts, worth_merging
from headrace.store.segments.reader import Segment, index_bytes
from headrace.store.tables.table import Table

ADDED = "added"
FOLD_ROWS = 1 << 12  # memory is filled in parts of no fewer rows


def added_kind(layout: RowLayout) -> FileKind:
    return FileKind(ADDED, layout)


@dataclass
class Held:
    """What memory has of a slice."""

    whole: Table | None  # what was committed; None where only segments have it
    fresh: Table | None = None  # what the running epoch added, but for what it spilled
    news: int = 0  # keys of `fresh` that are not in `whole`

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in (self.whole, self.fresh) if table is not None)


@dataclass
class FinalStore(Store):
    """State of one partition; `files` writes its segments."""

    spec: OperatorSpec
    share: Share
    files: Files
    segments: list[Segment]
    watermark_us: int | None
    late_rows: int = 0
    spilled: list[Segment] = field(default_factory=list)
    _slices: dict[int, Held] = field(default_factory=dict)
    _overflows: bool = False  # a sum leaves its type: no use to try again, its window will raise it
    _table_bytes: int = 0  # of all tables; added up anew for every slice it would be quadratic
    _expected: int = 0  # keys of the largest table last spilled: the next need not grow step by step

    @cached_property
    def layout(self) -> RowLayout:
        return RowLayout(self.spec)

    @cached_property
    def _window(self) -> Window:
        assert self.spec.window is not None
        return self.spec.window

    @cached_property
    def partials(self) -> Partials:
        return Partials(self.layout, self._window)

    @cached_property
    def _nothing(self) -> Table:
        return Table(self.layout)

    @cached_property
    def _kind(self) -> FileKind:
        return added_kind(self.layout)

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        """Fold rows into the state; rows of closed windows are dropped and counted."""
        kept = 0
        for slice_us, part in cut(rows, self._window, self.watermark_us):
            self._fold(slice_us, part)
            kept += rows_in(part)
        self.late_rows += rows_in(rows) - kept

    def _fold(self, slice_us: int, rows: pa.RecordBatch) -> None:
        self.partials.forget(slice_us)
        for part in self._fitting(slice_us, rows):
            self._fold_part(slice_us, part)

    def _fitting(self, slice_us: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in parts, with room for each: few of them may be new keys, which the next part has."""
        half = rows.num_rows // 2
        if half < FOLD_ROWS or fits(self, self._growth_bytes(slice_us, rows.num_rows, heap_bytes(rows))):
            yield rows
            return
        yield from self._fitting(slice_us, rows.slice(0, half))
        yield from self._fitting(slice_us, rows.slice(half))

    def _fold_part(self, slice_us: int, rows: pa.RecordBatch) -> None:
        self._make_room(slice_us, rows.num_rows, heap_bytes(rows))
        state = self._state(slice_us)
        before = state.nbytes
        if state.fresh is None:
            state.fresh = Table(self.layout, min(rows.num_rows, self._expected))
        fresh = state.fresh
        ids, inserted = fresh.upsert(probe_of(self.layout, rows))
        fresh.accumulate(ids, rows)
        state.news += len(inserted)
        if state.whole is not None and len(state.whole):
            state.news -= int(np.count_nonzero(state.whole.find(fresh.keys_of(inserted)) >= 0))
        self._table_bytes += state.nbytes - before

    def _state(self, slice_us: int) -> Held:
        state = self._slices.get(slice_us)
        if state is None:
            state = Held(whole=None if self._stored_rows(slice_us) else Table(self.layout))
            self._slices[slice_us] = state
            self._table_bytes += state.nbytes
        return state

    def _stored(self, slice_us: int) -> list[Segment]:
        return [segment for segment in (*self.segments, *self.spilled) if slice_us in segment.sections]

    def _stored_rows(self, slice_us: int) -> int:
        return sum(segment.sections[slice_us].rows for segment in self._stored(slice_us))

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def whole_tables(self) -> dict[int, Table]:
        """The tables with all rows of their slice, by slice."""
        return {s: state.whole for s, state in self._slices.items() if state.whole is not None}

    @property
    def memory_bytes(self) -> int:
        indexes = index_bytes((*self.segments, *self.spilled))
        return self._table_bytes + self.partials.nbytes + indexes

    def keys_after(self, watermark_us: int | None) -> int:
        """Rows of state then: exact for slices in memory, for others a key counts once per segment."""
        live = self._live()
        return sum(self._keys_of(s) for s in live if not is_closed(s, self._window, watermark_us))

    def _keys_of(self, slice_us: int) -> int:
        state = self._slices.get(slice_us, Held(None))
        return (self._stored_rows(slice_us) if state.whole is None else len(state.whole)) + state.news

    def _live(self) -> set[int]:
        stored = {s for segment in (*self.segments, *self.spilled) for s in segment.sections}
        return stored | set(self._slices)

    def _make_room(self, slice_us: int, rows: int, heap: int) -> None:
        """Evicts what can be read again, and spills what cannot, until the rows fit."""
        growth = partial(self._growth_bytes, slice_us, rows, heap)
        make_room(self, growth, self._release, self._evict, self.spill)

    def _growth_bytes(self, slice_us: int, rows: int, heap: int) -> int:
        state = self._slices.get(slice_us)
        fresh = None if state is None else state.fresh
        return (self._nothing if fresh is None else fresh).growth_bytes(rows, heap)

    def _release(self) -> None:
        """Give back indexes and nodes: they are read or made again when used again."""
        self.partials.clear()
        for segment in (*self.segments, *self.spilled):
            for slice_us in segment.sections:
                segment.release(slice_us)

    def _evict(self) -> None:
        """Drop whole tables, the largest first, until half of the share is in use: then it is rare."""
        held_whole = [state for state in self._slices.values() if state.whole is not None]
        evict(self, sorted(held_whole, key=lambda state: -state.nbytes), self._drop_whole, EVICT_TO)
        self._tidy()

    def _drop_whole(self, state: Held, _: int) -> int:
        before = state.nbytes
        state.whole, state.news = None, 0 if state.fresh is None else len(state.fresh)
        self._table_bytes += state.nbytes - before
        return before - state.nbytes

    def spill(self) -> None:
        """Write what the running epoch has added so far; its slices are on disk only then."""
        sections = self._sections(lambda _: True)
        if not sections:
            return
        slides = self._window.slide_us not in (0, self._window.width_us)
        write = self.files.write if slides else self.files.spill  # several windows: merged in the end
        self.spilled.append(write(self._kind, sections))
        self._expected = max(len(state.fresh) for state in self._slices.values() if state.fresh is not None)
        for slice_us, _ in sections:
            self._drop(slice_us)

    def _tidy(self) -> None:
        """A slice that has no table is not held: there may be very many of them."""
        for slice_us in [s for s, state in self._slices.items() if not state.nbytes]:
            del self._slices[slice_us]

    def _drop(self, slice_us: int) -> None:
        state = self._slices.pop(slice_us, None)
        self._table_bytes -= 0 if state is None else state.nbytes

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """Every group of the windows that the watermark closes."""
        for start_us in closing(self._live(), self._window, self.watermark_us, watermark_us):
            panes = self._panes(start_us)
            for run in combined(panes, self.layout, rows_max(panes, self.share)):
                yield from results_of(self.layout, run, start_us, RESULT_ROWS)

    def _panes(self, start_us: int) -> list[Pane]:
        """What the window is made of, oldest first."""
        of_slice = {s: panes for s in slices_of(start_us, self._window) if (panes := self._panes_of(s))}
        free = self.share.limit_bytes - self.memory_bytes + self.partials.nbytes
        return self.partials.pieces(start_us, of_slice, min(free, PARTIALS_MAX.of(self.share)))

    def _panes_of(self, slice_us: int) -> list[Pane]:
        state = self._slices.get(slice_us, Held(None))
        tables = [table for table in (state.whole, state.fresh) if table is not None and len(table)]
        panes = [Pane(slice_us, table, ()) for table in tables]
        if state.whole is not None:
            return panes
        return [*(Pane(slice_us, self._nothing, (segment,)) for segment in self._stored(slice_us)), *panes]

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def _sections(self, wanted: Callable[[int], bool]) -> Sections:
        fresh = ((s, state.fresh) for s, state in sorted(self._slices.items()) if wanted(s))
        return [(s, [table.whole_run()]) for s, table in fresh if table is not None and len(table)]

    def gather(self, watermark_us: int | None) -> Gathered:
        """What the epoch added to slices that stay; the thunk touches no table."""
        if self._worth_merging(watermark_us):
            self.spill()
            return Gathered(self.files, early=partial(self._merged, tuple(self.spilled), watermark_us))
        sections = self._sections(lambda s: not is_closed(s, self._window, watermark_us))
        return Gathered(self.files, ((self._kind, sections),) if sections else (), tuple(self.spilled))

    def _worth_merging(self, watermark_us: int | None) -> bool:
        """Whether the windows to come would read so much less that what was spilled is better made one."""
        if not self.spilled:
            return False
        spilled = [{s: entry.rows for s, entry in one.sections.items()} for one in self.spilled]
        fresh = {s: len(state.fresh) for s, state in self._slices.items() if state.fresh is not None}
        live = [
            {s: rows for s, rows in part.items() if not is_closed(s, self._window, watermark_us)}
            for part in (*spilled, fresh)
        ]
        left = partial(windows_left, window=self._window, watermark_us=watermark_us)
        return worth_merging([part for part in live if part], left)

    def _merged(self, spilled: tuple[Segment, ...], watermark_us: int | None) -> list[Segment]:
        """One segment of all that the epoch added to slices that stay; none of them has a name yet."""
        numbers = {s for segment in spilled for s in segment.sections}
        slices = sorted(s for s in numbers if not is_closed(s, self._window, watermark_us))

        def runs(slice_us: int) -> Iterator[Run]:
            sources = [(one, slice_us) for one in reversed(spilled) if slice_us in one.sections]
            return summed(self.layout, sources, MERGE_ROWS)

        try:
            return [self.files.write(self._kind, [(s, runs(s)) for s in slices])]
        except ArithmeticOverflow:  # its window will raise it
            self._overflows = True
            return list(spilled)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        """The epoch is durable: what it added is committed, and closed windows are gone."""
        for slice_us in [s for s in self._live() if is_closed(s, self._window, watermark_us)]:
            self._drop(slice_us)
            self.partials.forget(slice_us)
            for segment in segments:
                segment.release(slice_us)
        for state in self._slices.values():
            self._commit(state)
        self._tidy()
        self.segments, self.spilled, self.watermark_us = segments, [], watermark_us
        make_room(self, no_growth, self._release, self._evict)

    def _commit(self, state: Held) -> None:
        """What was fresh is in a segment now; memory keeps it where it has the whole slice."""
        fresh, before = state.fresh, state.nbytes
        state.fresh, state.news = None, 0
        if fresh is not None and state.whole is not None:
            state.whole = self._absorbed(state.whole, fresh)
        self._table_bytes += state.nbytes - before

    def _absorbed(self, whole: Table, fresh: Table) -> Table | None:
        """Merges both tables; None if memory is short or a sum overflows.

        The overflow is raised when the window closes.
        """
        if not len(whole):
            return fresh
        growth = whole.growth_bytes(len(fresh), fresh.heap_bytes) - fresh.nbytes
        if not fits(self, growth):
            return None
        try:
            whole.absorb(fresh.view())
        except ArithmeticOverflow:
            return None
        return whole

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return not all(is_closed(slice_us, self._window, watermark_us) for slice_us in segment.sections)

    @property
    def _is_unread(self) -> bool:
        """Whether all rows are in memory, so that nobody reads the segments."""
        return all(s in self._slices and self._slices[s].whole is not None for s in self._live())

    def maintenance(self, many: int | None = None) -> Job | None:
        if self._overflows:
            return None
        parts = [{s: entry.rows for s, entry in one.sections.items()} for one in self.segments]
        sizes = [segment.size for segment in self.segments]
        unread, window, bound = self._is_unread, self._window, self.watermark_us
        chosen = plan_parts(parts, sizes, lambda s: 0 if unread else windows_left(s, window, bound))
        if chosen is None or (many is not None and len(self.segments) <= many):
            return None
        inputs = self.segments[chosen]
        live = live_sections(inputs, lambda s: not is_closed(s, window, bound))
        return Compaction.of(inputs, Merge("sums", self.spec, self._kind, live), self._merge)

    def _merge(self, by: Merge, inputs: Sequence[Segment], path: Path, stop: threading.Event) -> bool:
        try:
            return merge_sums(by, inputs, path, stop)
        except ArithmeticOverflow:
            self._overflows = True
            raise


def merge_sums(by: Merge, inputs: Sequence[Segment], path: Path, stop: threading.Event) -> bool:
    """One row per key, of what all inputs have of it."""
    layout, live = by.kind.shape, set(by.sections)
    assert isinstance(layout, RowLayout)
    together = partial(summed, layout)
    return compact(inputs, path, layout, live.__contains__, stop, together=together) is not None
