"""The RMW store: the state of one partition, updated in place, larger than memory.

    rows ─▶ tables in memory, one per slice ─▶ (flush) ─▶ segments on disk, newest last

Invariants: a table row, where there is one, is the newest value of its key; clean rows are also in a
segment; a slice is *complete* while every key it has is in its table, so that a key not found there is new.
A row is folded once, into its slice; a window of several slices is combined when it is given out (`panes`).
Segments are whole rows, the newest one that holds a key wins. There may be very many windows, so one that
has lost all its rows in memory loses its table too.
Threads: one transaction at a time calls in; compaction only reads segments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.cache.policy import Policy, TimestampAware
from headrace.kernels.core.order import by_hash
from headrace.plan.spec import OperatorSpec, Window, rows_in
from headrace.rows.arrays import Ids
from headrace.rows.chunks import MERGE_ROWS, RESULT_ROWS
from headrace.rows.run import Run
from headrace.store.base.files import FileKind, Files, Gathered, Sections
from headrace.store.base.jobs import Compaction, Job
from headrace.store.base.room import EVICT_TO, PARTIALS_MAX, STAGED_MAX, evict, make_room, no_growth
from headrace.store.base.share import Share
from headrace.store.base.waits import StateWaits
from headrace.store.fold.looking import LookingStore, SliceState
from headrace.store.fold.panes import Pane, combined, combined_of, rows_max
from headrace.store.fold.partials import Partials
from headrace.store.rows.arrow import heap_bytes, probe_of, results_of
from headrace.store.rows.slices import closing, cut, is_closed, slices_of, taking
from headrace.store.segments.compact import Together, compact, plan
from headrace.store.segments.merge import Source, merge
from headrace.store.segments.reader import Segment, announce, index_bytes
from headrace.store.tables.table import Table


@dataclass
class RmwStore(LookingStore):
    """State of one partition; `files` writes its segments."""

    spec: OperatorSpec
    share: Share
    files: Files
    segments: list[Segment]
    watermark_us: int | None
    known_keys: int = 0
    late_rows: int = 0
    spilled: list[Segment] = field(default_factory=list)
    kind_name: str = "rows"  # of its segments
    policy: Policy = field(default_factory=TimestampAware)
    waits: StateWaits = field(default_factory=StateWaits)
    _slices: dict[int, SliceState] = field(default_factory=dict)
    _parked: dict[int, int] = field(default_factory=dict)  # keys of windows whose table was dropped
    _table_bytes: int = 0  # of all tables; added up anew for every slice it would be quadratic
    _runs: dict[int, Run] = field(default_factory=dict)
    _block: int = 0  # blocks of rows that were folded

    @cached_property
    def partials(self) -> Partials:
        return Partials(self.layout, self.spec.window)

    @cached_property
    def _kind(self) -> FileKind:
        return FileKind(self.kind_name, self.layout)

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    @property
    def tables(self) -> dict[int, Table]:
        """The tables in memory, by slice."""
        return {slice_us: state.table for slice_us, state in self._slices.items()}

    @property
    def slices(self) -> set[int]:
        """The slices with a table in memory, or with a number of keys where the table was dropped."""
        return {*self._slices, *self._parked}

    @property
    def looks_up(self) -> bool:
        """Whether a table lacks keys that are stored."""
        return not all(state.complete for state in self._slices.values())

    def announce(self, rows: pa.RecordBatch) -> None:
        """Of a running aggregate, whose slice is known before its rows are cut."""
        state = self._slices.get(0) if self.spec.window is None else None
        if state is None or state.complete or not any(segment.is_far for segment in self.segments):
            return
        probe = probe_of(self.layout, rows)
        missing = probe.order[state.table.find(probe) < 0]
        announce([(segment, 0) for segment in self.segments], np.unique(missing))

    def apply(self, rows: pa.RecordBatch) -> None:
        """Fold rows into the state; rows of closed windows are dropped and counted."""
        kept = 0
        self._block += 1
        for slice_us, part in cut(rows, self.spec.window, self.watermark_us):
            self._fold(slice_us, part)
            kept += rows_in(part)
        self.late_rows += rows_in(rows) - kept

    def _fold(self, slice_us: int, rows: pa.RecordBatch) -> None:
        state = self._slice(slice_us)
        self.partials.forget(slice_us)
        self._make_room(state, rows.num_rows, heap_bytes(rows))
        before = state.table.nbytes
        state.table.use(self.policy.used(self._block, self._latest_us(rows)))
        row_ids, fresh = state.table.upsert(probe_of(self.layout, rows))
        if len(fresh):
            state.keys += len(fresh) - self._load(slice_us, state, fresh)
        self._changing(slice_us, state, row_ids)
        state.table.accumulate(row_ids, rows)
        self._table_bytes += state.table.nbytes - before

    def _changing(self, slice_us: int, state: SliceState, row_ids: Ids) -> None:
        """Called before rows change, with their stored values loaded."""

    def _slice(self, slice_us: int) -> SliceState:
        state = self._slices.get(slice_us)
        if state is None:
            keys = self._parked.pop(slice_us, self._stored_keys(slice_us))
            state = SliceState(self._table(), complete=not self._is_stored(slice_us), keys=keys)
            self._slices[slice_us] = state
            self._table_bytes += state.table.nbytes
        return state

    def _table(self) -> Table:
        return Table(self.layout, second_chance=self.policy.second_chance)

    def _stored_keys(self, slice_us: int) -> int:
        """Keys of the slice on disk: exact for a lone slice, an upper bound if segments overlap."""
        if self.spec.window is None:
            return self.known_keys
        stored = (*self.segments, *self.spilled)
        return sum(segment.sections[slice_us].rows for segment in stored if slice_us in segment.sections)

    def _load(self, slice_us: int, state: SliceState, fresh: np.ndarray) -> int:
        """Bring the stored values of freshly inserted keys into the table; how many had one."""
        if state.complete:
            return 0
        ordered = fresh[by_hash(state.table.hashes[fresh])]
        answer = self._look_up(slice_us, state.table.keys_of(ordered))
        hit = np.flatnonzero(answer.mask)
        if len(hit):
            state.table.fill(ordered[hit], answer.words[hit], answer.heap)
        return len(hit)

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def memory_bytes(self) -> int:
        return self.needed_bytes + self.lookahead.nbytes

    @property
    def needed_bytes(self) -> int:
        indexes = index_bytes((*self.segments, *self.spilled))
        return self._table_bytes + self.partials.nbytes + indexes

    @property
    def keys(self) -> int:
        """Rows of state, as far as known without reading the disk."""
        return self.keys_after(self.watermark_us)

    def keys_after(self, watermark_us: int | None) -> int:
        """Rows of state once the windows that `watermark_us` closes are gone."""
        live = self._stored_slices() | set(self._slices)
        return sum(self._keys_of(s) for s in live if not is_closed(s, self.spec.window, watermark_us))

    def _keys_of(self, slice_us: int) -> int:
        state = self._slices.get(slice_us)
        if state is not None:
            return state.keys
        parked = self._parked.get(slice_us)
        return self._stored_keys(slice_us) if parked is None else parked

    def _stored_slices(self) -> set[int]:
        return {s for segment in (*self.segments, *self.spilled) for s in segment.sections}

    def _make_room(self, state: SliceState, rows: int, heap: int) -> None:
        """Evict clean rows, and spill dirty ones where that is not enough, until the rows fit."""
        make_room(
            self,
            lambda: state.table.growth_bytes(rows, heap),
            self.partials.clear,
            lambda: self._evict_for(state, rows, heap),
            self.lookahead.drop,
            self.spill,
            lambda: self._evict_for(state, rows, heap),
        )

    def _make_room_ahead(self, staged_bytes: int) -> None:
        staged = min(staged_bytes, STAGED_MAX.of(self.share) - self.lookahead.nbytes)
        make_room(self, lambda: max(0, staged), self.partials.clear, self._evict_all)

    def _evict_for(self, state: SliceState, rows: int, heap: int) -> None:
        """Evict from all tables, from the one that is about to grow last."""
        self._evict([other for other in self._slices.values() if other is not state])
        self._park(state)
        rest = self.memory_bytes - state.table.nbytes
        self._evict_from(state, max(0, EVICT_TO.of(self.share) - rest), rows, heap)

    def _evict(self, states: Iterable[SliceState]) -> None:
        """Drop clean rows, the largest tables first."""
        largest = sorted(states, key=lambda state: -state.table.nbytes)
        evict(self, largest, lambda one, excess: self._evict_from(one, one.table.nbytes - excess), EVICT_TO)

    def _evict_all(self) -> None:
        self._evict(self._slices.values())
        self._park()

    def _evict_from(self, state: SliceState, bytes_max: int, rows: int = 0, heap: int = 0) -> int:
        """Drop clean rows until the table has at most `bytes_max`; how many bytes that frees."""
        before = state.table.nbytes
        if state.table.evict(max(0, bytes_max), rows, heap):
            state.complete = False
        self._table_bytes += state.table.nbytes - before
        return before - state.table.nbytes

    def _park(self, kept: SliceState | None = None) -> None:
        """Drop the tables of windows that have no row in memory: an empty table takes memory too."""
        if self.spec.window is None:
            return
        empty = [s for s, state in self._slices.items() if state is not kept and not len(state.table)]
        for slice_us in empty:
            self._parked[slice_us] = self._slices[slice_us].keys
            self._drop(slice_us)

    def _drop(self, slice_us: int) -> None:
        state = self._slices.pop(slice_us, None)
        self._table_bytes -= 0 if state is None else state.table.nbytes

    def spill(self) -> None:
        """Write dirty rows to a segment of the running epoch, so that they may be evicted."""
        sections = self._dirty_sections(lambda _: True)
        if sections:
            self.spilled.append(self.files.write(self._kind, sections))
            self._settle()

    def _settle(self) -> None:
        self.lookahead.flushed(self._dirty_hashes)
        self._runs.clear()
        for state in self._slices.values():
            state.table.settle()

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """Changed rows, those of the windows that the watermark closes, or all."""
        if self.spec.emit == "complete":
            return self._complete()
        return self._changes() if self.spec.emit == "changes" else self._closed(watermark_us)

    def _complete(self) -> Iterator[pa.RecordBatch]:
        """Every group, changed or not."""
        window, live = self.spec.window, self._stored_slices() | set(self._slices)
        for start_us in sorted(live) if window is None else taking(live, window, None):
            runs = self._slice_runs(start_us) if window is None else self._whole_runs(start_us, window)
            yield from self._results(start_us, runs)

    def _changes(self) -> Iterator[pa.RecordBatch]:
        """Every group that this epoch changed, once, as it is now."""
        window, touched = self.spec.window, self._touched()
        for start_us in sorted(touched) if window is None else taking(touched, window, self.watermark_us):
            yield from self._results(start_us, self._changed_runs(start_us, touched))

    def _closed(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """Every group of the windows that `watermark_us` closes; changed ones of those closed before."""
        window = self.spec.window
        if window is None:
            return
        yield from self._late_changes(window)
        live = self._stored_slices() | set(self._slices)
        for start_us in closing(live, window, self.watermark_us, watermark_us):
            yield from self._results(start_us, self._whole_runs(start_us, window))

    def _late_changes(self, window: Window) -> Iterator[pa.RecordBatch]:
        """The groups that rows within the lateness have changed in windows that were given out before."""
        before_us, touched = self.watermark_us, self._touched() if window.lateness_us else set()
        if before_us is None:
            return
        for start_us in taking(touched, window, before_us):
            if start_us + window.width_us <= before_us:
                yield from self._results(start_us, self._changed_runs(start_us, touched))

    def _touched(self) -> set[int]:
        dirty = {slice_us for slice_us, state in self._slices.items() if state.table.dirty_count}
        return dirty.union(*(segment.sections for segment in self.spilled))

    def _results(self, start_us: int, runs: Iterator[Run]) -> Iterator[pa.RecordBatch]:
        for run in runs:
            yield from results_of(self.layout, run, start_us if self.spec.window else None, RESULT_ROWS)

    def _changed_runs(self, start_us: int, touched: set[int]) -> Iterator[Run]:
        """The groups of the window that this epoch changed."""
        window = self.spec.window
        slices = slices_of(start_us, window) if window else range(start_us, start_us + 1)
        if len(slices) == 1 and not self.spilled:
            return iter([self._dirty_run(start_us)])
        sources = [source for s in slices if s in touched for source in self._changed_rows(s)]
        if len(slices) == 1:
            return merge(sources, self.layout, MERGE_ROWS)
        return combined_of(self._panes(slices), sources, self.layout, MERGE_ROWS)

    def _changed_rows(self, slice_us: int) -> list[Source]:
        """Where the slice's rows of this epoch are, newest first."""
        spilled = [(segment, slice_us) for segment in self.spilled[::-1] if slice_us in segment.sections]
        return [self._dirty_run(slice_us), *spilled]

    def _whole_runs(self, start_us: int, window: Window) -> Iterator[Run]:
        """All groups of the window."""
        slices = slices_of(start_us, window)
        if len(slices) == 1:
            return self._slice_runs(start_us)
        free = self.share.limit_bytes - self.memory_bytes + self.partials.nbytes
        of_slice = {pane.slice_us: (pane,) for pane in self._panes(slices)}
        panes = self.partials.pieces(start_us, of_slice, min(free, PARTIALS_MAX.of(self.share)))
        return combined(panes, self.layout, rows_max(panes, self.share))

    def _panes(self, slices: Iterable[int]) -> list[Pane]:
        """The slices that have any row."""
        panes = []
        for slice_us in slices:
            state, stored = self._slices.get(slice_us), [*self.segments, *self.spilled][::-1]
            if state is not None and state.complete:
                stored = []
            table = Table(self.layout) if state is None else state.table
            pane = Pane(slice_us, table, tuple(s for s in stored if slice_us in s.sections))
            panes += [pane] if pane.rows else []
        return panes

    def _slice_runs(self, slice_us: int) -> Iterator[Run]:
        state = self._slices.get(slice_us)
        memory = self._no_rows() if state is None else state.table.whole_run()
        if state is not None and state.complete:
            return iter([memory])
        return self._merged(slice_us, memory, [*self.segments, *self.spilled])

    def _merged(self, slice_us: int, memory: Run, segments: Sequence[Segment]) -> Iterator[Run]:
        stored = [(segment, slice_us) for segment in reversed(segments) if slice_us in segment.sections]
        return merge([memory, *stored], self.layout, MERGE_ROWS)

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def _dirty_sections(self, live: Callable[[int], bool]) -> Sections:
        dirty = sorted(s for s, state in self._slices.items() if state.table.dirty_count and live(s))
        return [(slice_us, [self._dirty_run(slice_us)]) for slice_us in dirty]

    def gather(self, watermark_us: int | None) -> Gathered:
        """What the epoch changed; the thunk touches no table."""
        window = self.spec.window
        sections = self._dirty_sections(lambda s: not is_closed(s, window, watermark_us))
        changed = ((self._kind, sections),) if sections else ()
        return Gathered(self.files, changed, tuple(self.spilled))

    def _dying(self, watermark_us: int | None) -> list[int]:
        """The live slices that `watermark_us` closes for good."""
        live, window, before_us = (
            self._stored_slices() | set(self._slices),
            self.spec.window,
            self.watermark_us,
        )
        gone = [s for s in live if is_closed(s, window, watermark_us)]
        return sorted(s for s in gone if not is_closed(s, window, before_us))

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        """The epoch is durable: what it wrote is clean now, and closed windows are gone."""
        for slice_us in self._dying(watermark_us):
            self._drop(slice_us)
            self._parked.pop(slice_us, None)
            self.partials.forget(slice_us)
            for segment in segments:
                segment.release(slice_us)
        self.segments, self.spilled, self.watermark_us = segments, [], watermark_us  # before `_settle`
        self._settle()
        self.lookahead.settled(lambda s: not is_closed(s, self.spec.window, watermark_us))
        self.known_keys = self.keys
        make_room(self, no_growth, self.partials.clear, self._evict_all)

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return not all(is_closed(slice_us, self.spec.window, watermark_us) for slice_us in segment.sections)

    @property
    def _is_unread(self) -> bool:
        """Whether all rows are in memory, so that no lookup ever goes to the segments."""
        slices = self._slices.values()
        return bool(slices) and not self._parked and all(state.complete for state in slices)

    def _together(self, oldest: bool) -> Together | None:
        """What a compaction makes of a key's rows, with or without the oldest segment; None: the newest."""
        return None

    def maintenance(self, many: int | None = None) -> Job | None:
        chosen = plan([segment.size for segment in self.segments], unread=self._is_unread)
        if chosen is None or (many is not None and len(self.segments) <= many):
            return None
        inputs, kind, window, bound = (
            tuple(self.segments[chosen]),
            self._kind,
            self.spec.window,
            self.watermark_us,
        )

        together = self._together(chosen.start == 0)

        def write(path: Path, stop: threading.Event) -> bool:
            def is_live(slice_us: int) -> bool:
                return not is_closed(slice_us, window, bound)

            return compact(inputs, path, kind.shape, is_live, stop=stop, together=together) is not None

        return Compaction(inputs, kind, write)
