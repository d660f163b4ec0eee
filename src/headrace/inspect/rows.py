"""The rows of one version of one partition, read from its segments: one class per form of state.

Every class answers a read of one section: a range of order keys, or a few hashes. Its answer is what
the store would hold: newest rows only, added rows combined, rows of closed windows left out.
Threads: one reader per object. Memory: the rows of one read, and the indexes of the sections in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.inspect.shown.batches import fold_batch, kept_batch
from headrace.kernels.sessions.rows import newest_order
from headrace.plan.choice import adds
from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import U64
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.append.merge import concatenated
from headrace.store.aur.compact import sessions_of
from headrace.store.aur.log import logs_of
from headrace.store.base.files import of_kind
from headrace.store.cells.store import CELLS
from headrace.store.changes.bag_rows import BagShape
from headrace.store.rows.kept_layout import KeptLayout, ordered, subset, times_in, with_hashes
from headrace.store.rows.slices import WHOLE, is_closed
from headrace.store.rows.take import rows_at
from headrace.store.segments.merge import Source, concatenate, merge_runs
from headrace.store.segments.reader import Segment
from headrace.store.sessions.layout import SessionLayout
from headrace.store.sessions.rows import ROWS
from headrace.store.settled.open_rows import OPEN, open_spec
from headrace.store.tables.table import Table

SESSIONS = 0  # the only section of session state
Read = Callable[[Segment, int], Run]  # the selected rows of a segment's section, in order


@dataclass(frozen=True)
class Between:
    """Reads order keys in `[low, high)`."""

    low: int
    high: int

    def __call__(self, segment: Segment, section: int) -> Run:
        return segment.scan_range(section, self.low, self.high)


@dataclass(frozen=True)
class Hashes:
    """Reads the rows of ordered, distinct hashes."""

    hashes: U64

    def __call__(self, segment: Segment, section: int) -> Run:
        return segment.rows_of(section, self.hashes)


@dataclass(frozen=True)
class Held:
    """The segments of a version, and the watermark that closes windows in it."""

    spec: OperatorSpec
    segments: Sequence[Segment]  # oldest first
    closed_through_us: int | None

    def open_sections(self) -> list[int]:
        numbers = {number for segment in self.segments for number in segment.sections}
        return sorted(n for n in numbers if not is_closed(n, self.spec.window, self.closed_through_us))


class StateRows(Protocol):
    """State of one form."""

    @property
    def by_time(self) -> bool:
        """Whether order keys are event times instead of hashes."""

    def sections(self) -> list[int]:
        """The sections that are open, in the order of time."""

    def sources(self, section: int) -> list[Source]:
        """Where the rows of a section are, to cut it into ranges."""

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        """The selected rows of a section, as wire columns after the hash."""


@dataclass(frozen=True)
class FoldRows:
    """One row per key and slice: the newest one, or the sum of all where epochs add."""

    stored: Held
    by_time: bool = False

    @cached_property
    def layout(self) -> RowLayout:
        return RowLayout(self.stored.spec)

    def sections(self) -> list[int]:
        return self.stored.open_sections()

    def sources(self, section: int) -> list[Source]:
        return [(segment, section) for segment in self.stored.segments if section in segment.sections]

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        runs = [read(segment, section) for segment in self.stored.segments if section in segment.sections]
        run = self._summed(runs) if adds(self.stored.spec) else merge_runs(runs[::-1], self.layout)
        return fold_batch(self.stored.spec, self.layout, run, section)

    def _summed(self, runs: Sequence[Run]) -> Run:
        table = Table(self.layout, max((len(run) for run in runs), default=0))
        for run in runs:
            table.absorb(run)
        return table.whole_run()


@dataclass(frozen=True)
class KeptRows:
    """Rows kept until their window closes, ordered by hash or by event time."""

    stored: Held
    by_time: bool

    @cached_property
    def layout(self) -> KeptLayout:
        return KeptLayout(self.stored.spec, hashed=self.by_time)

    def sections(self) -> list[int]:
        return self.stored.open_sections()

    def sources(self, section: int) -> list[Source]:
        return [(segment, section) for segment in self.stored.segments if section in segment.sections]

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        runs = [read(segment, section) for segment in self.stored.segments if section in segment.sections]
        run = ordered(concatenated(runs, self.layout))
        return kept_batch(self.layout, with_hashes(self.layout, run) if self.by_time else run)


@dataclass(frozen=True)
class SessionRows:
    """Sessions with their accumulators: all sessions of a hash come from the newest segment that has it."""

    stored: Held
    by_time: bool = False

    @cached_property
    def layout(self) -> SessionLayout:
        return SessionLayout(self.stored.spec)

    @cached_property
    def _newest_first(self) -> list[Segment]:
        return of_kind(self.stored.segments, ROWS)[::-1]

    def sections(self) -> list[int]:
        return [SESSIONS] if self._newest_first else []

    def sources(self, section: int) -> list[Source]:
        return [(segment, segment.last) for segment in self._newest_first]

    def live(self, read: Read) -> Run:
        """The selected sessions that are open, ordered by hash."""
        runs = [run for segment in self._newest_first if len(run := read(segment, segment.last))]
        if not runs:
            return concatenated([], self.layout.rows)
        together, bounds = concatenate(runs, np.array(self.layout.rows.variable_words, np.int64))
        newest = rows_at(together, newest_order(together.order, bounds))
        dead_through = self.layout.dead_through(self.stored.closed_through_us)
        return self.layout.where(newest, self.layout.lasts(newest) > dead_through)

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        run = self.live(read)
        ends = self.layout.lasts(run) + self.layout.window.width_us
        bounds = (self.layout.firsts(run), ends)
        return fold_batch(self.stored.spec, self.layout.rows, run, None, bounds)


@dataclass(frozen=True)
class SessionKept:
    """Rows of sessions, each with the bounds of its session."""

    stored: Held
    by_time: bool = False

    @cached_property
    def _sessions(self) -> SessionRows:
        return SessionRows(self.stored)

    @cached_property
    def layout(self) -> KeptLayout:
        return KeptLayout(self.stored.spec)

    @cached_property
    def _logs(self) -> list[Segment]:
        return logs_of(self.stored.segments)

    def sections(self) -> list[int]:
        return [SESSIONS] if self._logs else []

    def sources(self, section: int) -> list[Source]:
        return [(segment, segment.last) for segment in self._logs]

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        sessions, layout = ordered(self._sessions.live(read)), self._sessions.layout
        rows = ordered(concatenated([read(segment, segment.last) for segment in self._logs], self.layout))
        of_row = sessions_of(layout, self.layout, sessions, rows)
        is_live = of_row >= 0
        rows, of_row = subset(self.layout, rows, is_live), of_row[is_live]
        firsts, lasts = layout.firsts(sessions)[of_row], layout.lasts(sessions)[of_row]
        return kept_batch(self.layout, rows, (firsts, lasts + layout.window.width_us))


@dataclass(frozen=True)
class OrderedRows:
    """Rows of windows by count or up to a marker: waiting for the watermark, or in open windows.

    All of them are ordered by hash, and are read together, as one section.
    """

    stored: Held
    by_time: bool = False

    @cached_property
    def layout(self) -> KeptLayout:
        return KeptLayout(self.stored.spec)

    @cached_property
    def _bags(self) -> RowLayout:
        return RowLayout(open_spec(self.stored.spec))

    @cached_property
    def _waiting(self) -> list[tuple[Segment, int]]:
        segments = (segment for segment in self.stored.segments if segment.kind != OPEN)
        return [(segment, bucket) for segment in segments for bucket in sorted(segment.sections)]

    @cached_property
    def _open(self) -> list[tuple[Segment, int]]:
        newest_first = of_kind(self.stored.segments, OPEN)[::-1]
        return [(segment, WHOLE) for segment in newest_first if WHOLE in segment.sections]

    def sections(self) -> list[int]:
        return [WHOLE] if self._waiting or self._open else []

    def sources(self, section: int) -> list[Source]:
        return [*self._waiting, *self._open]

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        rows = concatenated([self._unsettled(read(*source)) for source in self._waiting], self.layout)
        bags = merge_runs([read(*source) for source in self._open], self._bags)
        opened = BagShape(self.layout).unpacked(bags, self._bags.accumulators[0].word).rows
        return kept_batch(self.layout, ordered(concatenated([rows, opened], self.layout)))

    def _unsettled(self, run: Run) -> Run:
        """The rows that the watermark has not passed; the others are in open windows, or were emitted."""
        watermark_us = self.stored.closed_through_us
        if watermark_us is None:
            return run
        return subset(self.layout, run, times_in(self.layout, run) > watermark_us)


@dataclass(frozen=True)
class CellRows:
    """Cells of a processor; deleted ones are left out."""

    stored: Held
    by_time: bool = False

    @cached_property
    def _cells(self) -> FoldRows:
        return FoldRows(replace(self.stored, segments=of_kind(self.stored.segments, CELLS)))

    def sections(self) -> list[int]:
        return self._cells.sections()

    def sources(self, section: int) -> list[Source]:
        return self._cells.sources(section)

    def read(self, section: int, read: Read) -> pa.RecordBatch:
        batch = self._cells.read(section, read)
        return batch.filter(pc.is_valid(batch.column(batch.num_columns - 1)))
