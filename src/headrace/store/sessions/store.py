"""The store of sessions: associative aggregates over windows that end `gap` after their last row.

    rows ─▶ stretches by key ─▶ laid over the key's sessions ─▶ folded ─▶ (flush) ─▶ rows, timers

Invariants: the unit of storage is the hash. Where the table holds any row of a hash it holds all of them,
and they are the newest. A segment that has a hash has all sessions that were alive when it was written.
A session on disk is found when it ends through its timer; one in memory by looking at every row.
Threads: one transaction at a time calls in; compaction only reads segments.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.kernels.core.order import by_hash
from headrace.kernels.sessions.session import GONE
from headrace.kernels.sessions.stretches import stretches_of
from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import I64, U64, Ids
from headrace.row.chunks import RESULT_ROWS
from headrace.row.run import Run
from headrace.store.append.merge import concatenated
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files, Gathered, Sections, of_kind
from headrace.store.base.jobs import Compaction, Job, Merge
from headrace.store.base.room import EVICT_TO, excess_bytes, make_room, no_growth
from headrace.store.base.share import Share
from headrace.store.base.waits import StateWaits
from headrace.store.rows.arrow import heap_bytes, probe_of
from headrace.store.rows.slices import times_of
from headrace.store.segments.compact import plan
from headrace.store.segments.reader import Segment, index_bytes
from headrace.store.sessions import rows as stored
from headrace.store.sessions import timers
from headrace.store.sessions.layout import SessionLayout
from headrace.store.sessions.table import SessionTable, Stretches
from headrace.store.tables.table import Table

UNREAD_MANY = 32  # segments are left alone while all sessions are in memory: most die unread
LOAD_HASHES = 1 << 13  # read from disk at a time: copies of their rows lie beside the share for a moment


def timer_shape(spec: OperatorSpec) -> timers.TimerShape:
    """How the timers of an operator's sessions are written."""
    expects = spec.window is not None and spec.window.ends is not None and spec.work.keeps_rows
    return timers.EXPECTING if expects else timers.PLAIN


def session_kinds(spec: OperatorSpec) -> tuple[FileKind, ...]:
    """The kinds of segments that sessions are written to."""
    return (
        FileKind(stored.ROWS, SessionLayout(spec).rows),
        FileKind(timers.TIMERS, timer_shape(spec), hash_word=timers.HASH_WORD),
    )


@dataclass
class SessionStore(Store):
    """Sessions of one partition; `files` writes its segments."""

    spec: OperatorSpec
    share: Share
    files: Files
    segments: list[Segment]
    watermark_us: int | None
    known_keys: int = 0
    late_rows: int = 0
    spilled: list[Segment] = field(default_factory=list)
    waits: StateWaits = field(default_factory=StateWaits)
    _absent_through: int = GONE  # no session outside of memory has a later last time
    _absent: int = 0  # about how many live sessions are not in memory

    def __post_init__(self) -> None:
        segments = of_kind(self.segments, stored.ROWS)
        if segments:
            self._absent_through = max(stored.last_time(segment) for segment in segments)
            self._absent = self.known_keys

    @cached_property
    def layout(self) -> SessionLayout:
        return SessionLayout(self.spec)

    @cached_property
    def table(self) -> SessionTable:
        return SessionTable(self.layout)

    @cached_property
    def _kinds(self) -> tuple[FileKind, ...]:
        return session_kinds(self.spec)

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def waited(self) -> StateWaits:
        return self.waits

    @property
    def looks_up(self) -> bool:
        """Whether the table lacks sessions that are stored."""
        return not self.is_complete

    def apply(self, rows: pa.RecordBatch) -> None:
        """Fold rows into their sessions; a row whose own session would be dead is dropped and counted."""
        self.fold(self.timely(rows))

    def timely(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not late; the others are counted."""
        if self.watermark_us is None:
            return rows
        timely = self.layout.row_ends(rows) > self.layout.dead_through(self.watermark_us)
        if timely.all():
            return rows
        self.late_rows += int(np.count_nonzero(~timely))
        return rows.filter(pa.array(timely))

    def fold(self, rows: pa.RecordBatch) -> None:
        """Fold timely rows."""
        if not rows.num_rows:
            return
        self._make_room(rows.num_rows, heap_bytes(rows))
        of_row, keys = self._groups(rows)
        if not self.is_complete:
            self._load(stored.distinct(keys.order))
        times = times_of(rows)
        ends = times if self.layout.window.until is None else self.layout.row_ends(rows)
        ids = self._sessions_of(of_row, keys, times, ends)
        self.table.accumulate(ids, self.layout.with_match_times(rows, self.watermark_us))

    def _groups(self, rows: pa.RecordBatch) -> tuple[Ids, Run]:
        """The number of each row's key, and the keys by number, with ordinals of zero."""
        layout = self.layout.groups
        known = Table(layout, rows.num_rows)
        of_row, _ = known.upsert(probe_of(layout, rows, layout.keys[:-1]))
        return of_row, known.keys_of(np.arange(len(known)))

    def _sessions_of(self, of_row: Ids, keys: Run, times: I64, row_ends: I64) -> Ids:
        """The table's row of each row's session."""
        order = _by_group_and_time(of_row, times)
        of_stretch, *stretches = stretches_of(order, of_row, times, row_ends, self.layout.window.width_us)
        placed = self.table.place(keys, Stretches(*stretches), self._dead_through)
        ids: Ids = placed[of_stretch]
        return ids

    def _load(self, hashes: U64) -> None:
        """Bring the rows of hashes that are not in memory there; hashes are ordered and distinct."""
        for start in range(0, len(hashes), LOAD_HASHES):  # a range of hashes is a range of every segment
            run = self.absent(hashes[start : start + LOAD_HASHES])
            if len(run):
                self.table.insert(run)
                self._absent = max(0, self._absent - len(run))

    def absent(self, hashes: U64) -> Run:
        """The live sessions that are not in memory, of ordered, distinct hashes."""
        hashes = hashes[~self.table.holds(hashes)]
        self.waits.keys += len(hashes)
        with self.waits.waiting():
            ours, rest = stored.rows_of(self.layout, of_kind(self.spilled, stored.ROWS)[::-1], hashes)
            older, _ = stored.rows_of(self.layout, of_kind(self.segments, stored.ROWS)[::-1], rest)
        run = concatenated([ours, self.layout.unchanged(older)], self.layout.rows)
        return self.layout.where(run, self.layout.lasts(run) > self._dead_through)

    @property
    def _dead_through(self) -> int:
        return self.layout.dead_through(self.watermark_us)

    @property
    def is_complete(self) -> bool:
        """Whether every live session is in memory."""
        return self._absent_through <= self._dead_through

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def memory_bytes(self) -> int:
        return self.table.nbytes + index_bytes((*self.segments, *self.spilled))

    @property
    def overdrawn_bytes(self) -> int:
        """What the running batch takes beyond the share; it leaves with the batch."""
        return max(0, excess_bytes(self))

    def keys_after(self, watermark_us: int | None) -> int:
        """Sessions alive then; those outside of memory as far as known."""
        dead = self.layout.dead_through(watermark_us)
        return self.table.live(dead) + (0 if self._absent_through <= dead else self._absent)

    def _make_room(self, rows: int, heap: int) -> None:
        """Drop dead rows, evict clean ones, and spill dirty ones where that is not enough."""
        make_room(
            self,
            lambda: self.table.growth_bytes(rows, heap),
            self._purge,
            lambda: self._evict_for(rows, heap),
            self.spill,
            lambda: self._evict_for(rows, heap),
        )

    def _purge(self) -> None:
        self.table.purge(self._dead_through)

    def _evict_for(self, rows: int = 0, heap: int = 0) -> None:
        """Evict clean rows, with room for `rows` more."""
        indexes = self.memory_bytes - self.table.nbytes
        self._evict(max(0, EVICT_TO.of(self.share) - indexes), rows, heap)

    def _evict(self, bytes_max: int, rows: int, heap: int) -> None:
        if not len(self.table):
            return
        latest, alive = int(self.table.lasts.max()), self.table.live(self._dead_through)
        if self.table.evict(bytes_max, rows, heap):
            self._absent_through = max(self._absent_through, latest)
            self._absent += alive - self.table.live(self._dead_through)

    def spill(self) -> None:
        """Write dirty sessions to segments of the running epoch, so that they may be evicted."""
        run = self.table.dirty_live(self._dead_through)
        written = self._written(run, self._timers(run, self.watermark_us))
        self.spilled += [self.files.spill(kind, sections) for kind, sections in written]
        self.table.settle()

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """Changed sessions, or those that the watermark closes."""
        runs = self.changes() if self.spec.emit == "changes" else self.closing(watermark_us)
        for run in runs:
            yield from self.layout.results(run)

    def changes(self) -> Iterator[Run]:
        """Every session that this epoch changed and that is still one of its own."""
        table = self.table
        yield from self._in_memory(np.flatnonzero(table.changed & (table.lasts > self._dead_through)))
        yield from self._changed_on_disk(None)

    def closing(self, watermark_us: int | None) -> Iterator[Run]:
        """Sessions that the watermark passes now, and those it had passed that changed since."""
        if watermark_us is None:
            return
        before = self.layout.closed_through(self.watermark_us)
        through = self.layout.closed_through(watermark_us)
        yield from self._in_memory(self.table.ending(before, through))
        if self.layout.window.lateness_us:
            late = self.table.ending(self._dead_through, before)
            yield from self._in_memory(late[self.table.changed[late]])
        if not self.is_complete:
            yield from self._closing_on_disk(watermark_us)
            if self.layout.window.lateness_us:
                yield from self._changed_on_disk(before)

    def _in_memory(self, ids: Ids) -> Iterator[Run]:
        for start in range(0, len(ids), RESULT_ROWS):
            yield self.table.rows_of(ids[start : start + RESULT_ROWS])

    def _closing_on_disk(self, watermark_us: int) -> Iterator[Run]:
        layout, gap = self.layout, self.layout.window.width_us
        segments = of_kind([*self.segments, *self.spilled], timers.TIMERS)
        for due in timers.due(segments, self.watermark_us, watermark_us, timer_shape(self.spec)):
            run = self.absent(due.hashes)
            ends = layout.lasts(run) + gap
            run = layout.where(run, (ends >= due.first_us) & (ends <= due.last_us))
            self._absent = max(0, self._absent - len(run))
            if len(run):
                yield run

    def _changed_on_disk(self, through: int | None) -> Iterator[Run]:
        """Sessions changed in this epoch that are only in spilled segments; up to a last time, if given."""
        for run in stored.newest(self.layout, of_kind(self.spilled, stored.ROWS)[::-1]):
            wanted = (run.words[:, self.layout.changed_word] > 0) & ~self.table.holds(run.order)
            if through is not None:
                wanted &= self.layout.lasts(run) <= through
            if wanted.any():
                yield self.layout.where(run, wanted)

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def gather(self, watermark_us: int | None) -> Gathered:
        """The sessions that the epoch changed and the watermark leaves alive, and their timers."""
        run = self.table.dirty_live(self.layout.dead_through(watermark_us))
        ends = self._timers(run, watermark_us)
        return Gathered(self.files, self._written(self.layout.unchanged(run), ends), tuple(self.spilled))

    def _timers(self, run: Run, watermark_us: int | None) -> Run:
        """Timers of the sessions that have not closed; results that go by changes need none."""
        lasts = self.layout.lasts(run)
        wanted = lasts > self.layout.closed_through(watermark_us)
        if self.spec.emit == "changes":
            wanted[:] = False
        expected = None if self.layout.window.ends is None else self.layout.ends(run.words[wanted])
        return timers.timers_of(lasts[wanted] + self.layout.window.width_us, run.order[wanted], expected)

    def _written(self, run: Run, ends: Run) -> tuple[tuple[FileKind, Sections], ...]:
        """The segments that sessions and their timers make, as far as there are any."""
        rows, times = self._kinds
        written = [(rows, stored.sections_of(self.layout, run))] if len(run) else []
        if len(ends):
            written.append((times, [(timers.SECTION, [ends])]))
        return tuple(written)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        """The epoch is durable: what it wrote is clean now, and dead sessions are gone."""
        self.table.settle()
        if self.spec.emit == "changes" or self.layout.window.lateness_us:
            self.table.forget_changes()
        self.segments, self.spilled, self.watermark_us = segments, [], watermark_us
        if self.is_complete:
            self._absent = 0
        if 2 * self.table.live(self._dead_through) < len(self.table):
            self._purge()
        make_room(self, no_growth, self._purge, self._evict_for)

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        if watermark_us is None:
            return True
        if segment.kind == timers.TIMERS:
            return timers.last_end(segment) > watermark_us
        return stored.last_time(segment) > self.layout.dead_through(watermark_us)

    def maintenance(self, many: int | None = None) -> Job | None:
        return self._compaction(self._kinds[0], many) or self._compaction(self._kinds[1], many)

    def _compaction(self, kind: FileKind, many: int | None) -> Compaction | None:
        segments = of_kind(self.segments, kind.name)
        unread = self.is_complete
        few = len(segments) <= (many if many is not None else UNREAD_MANY if unread else 0)
        chosen = None if few else plan([segment.size for segment in segments], unread=unread)
        if chosen is None:
            return None
        if kind.name == timers.TIMERS:
            by = Merge("timers", self.spec, kind, dead_through_us=self.watermark_us)
            return Compaction.of(segments[chosen], by, merge_timers)
        dead_through = self.layout.dead_through(self.watermark_us)
        by = Merge("sessions", self.spec, kind, dead_through_us=dead_through)
        return Compaction.of(segments[chosen], by, merge_sessions)


def merge_sessions(by: Merge, inputs: Sequence[Segment], path: Path, stop: threading.Event) -> bool:
    """The newest rows of each hash, without dead sessions."""
    assert by.dead_through_us is not None
    return stored.compact_sessions(SessionLayout(by.spec), inputs, path, by.dead_through_us, stop)


def merge_timers(by: Merge, inputs: Sequence[Segment], path: Path, stop: threading.Event) -> bool:
    """The timers that are not due."""
    return timers.compact_timers(inputs, path, by.dead_through_us, stop, timer_shape(by.spec))


def _by_group_and_time(groups: Ids, times: I64) -> Ids:
    """The order of rows by group, then by time: one radix sort where both fit into a word."""
    start = int(times.min())
    bits = (int(times.max()) - start).bit_length()
    if bits + int(groups.max()).bit_length() > 63:
        return np.lexsort((times, groups))
    order: Ids = by_hash(((groups << bits) | (times - start)).view(np.uint64))
    return order
