"""The RMW store: the state of one partition, updated in place, larger than memory.

    rows ─▶ tables in memory, one per slice ─▶ (flush) ─▶ segments on disk, newest last

Invariants: a table row, where there is one, is the newest value of its key; clean rows are also in a
segment. A slice is *complete* while every key it has is in its table, so that a key not found there is new.
A row is folded once, into its slice; a window of several slices is combined when it is given out (`panes`).
Segments are whole rows, the newest one that holds a key wins. There may be very many windows, so one that
has lost all its rows in memory loses its table too.
Threads: one transaction at a time calls in; compaction only reads segments.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.plan.spec import Window
from headrace.row.chunks import MERGE_ROWS, RESULT_ROWS
from headrace.row.run import Run
from headrace.store.base.files import Gathered
from headrace.store.base.jobs import Compaction, Job, Merge, live_sections
from headrace.store.base.room import PARTIALS_MAX, make_room, no_growth
from headrace.store.fold.panes import Pane, combined, combined_of, rows_max
from headrace.store.fold.sliced import SlicedStore
from headrace.store.rows.arrow import results_of
from headrace.store.rows.slices import closing, is_closed, slices_of, taking
from headrace.store.rows.take import rows_at
from headrace.store.segments.compact import compact, plan
from headrace.store.segments.merge import Shape, Source, merge
from headrace.store.segments.reader import Segment
from headrace.store.tables.table import Table

ANY_BIT = (1 << 64) - 1  # of a word that is not zero


@dataclass
class RmwStore(SlicedStore):
    """State of one partition; `files` writes its segments."""

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

    @property
    def _living(self) -> tuple[int, int] | None:
        """Word and bits of rows that live; those without are dropped with the oldest segment. None: all."""
        return None

    def maintenance(self, many: int | None = None) -> Job | None:
        chosen = plan([segment.size for segment in self.segments], unread=self._is_unread)
        if chosen is None or (many is not None and len(self.segments) <= many):
            return None
        inputs, window, bound = self.segments[chosen], self.spec.window, self.watermark_us
        live = live_sections(inputs, lambda slice_us: not is_closed(slice_us, window, bound))
        living = self._living if chosen.start == 0 else None
        return Compaction.of(
            inputs, Merge("newest", self.spec, self._kind, live, living=living), merge_newest
        )


def merge_newest(by: Merge, inputs: Sequence[Segment], path: Path, stop: threading.Event) -> bool:
    """The newest row of each key; rows that do not live are dropped."""
    shape, live = by.kind.shape, set(by.sections)
    together = None if by.living is None else partial(_living_rows, shape, by.living)
    return compact(inputs, path, shape, live.__contains__, stop=stop, together=together) is not None


def _living_rows(
    shape: Shape, living: tuple[int, int], newest_first: Sequence[Source], chunk_rows: int
) -> Iterator[Run]:
    word, bits = living[0], np.uint64(living[1])
    for run in merge(newest_first, shape, chunk_rows):
        yield rows_at(run, np.flatnonzero(run.words[:, word] & bits))
