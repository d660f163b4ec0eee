"""The AUR store (append, unaligned read): rows of sessions, kept until their own session is over.

    rows ─▶ sessions (`SessionStore`: bounds and counts)     rows ─▶ data log (`RowLog`)
    watermark ─▶ sessions that end ─▶ their rows, from memory, the prefetch buffer or the log ─▶ groups

Invariants: a session knows how many rows it has, so rows that were read ahead are used only where they are
all of them. A session is expected to end `gap` after its last row; when rows must be read from disk, those
of the sessions that are expected to end next are read with them.
Threads: as `store.contract` says.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import StateCorrupt
from headrace.spec import OperatorSpec
from headrace.store import session_rows, timers
from headrace.store.aur_buffer import PrefetchBuffer, many_ahead
from headrace.store.aur_compact import chosen, compact_log, sessions_of
from headrace.store.aur_log import LOG, RowLog, last_time, log_kind, pick
from headrace.store.budget import MemoryBudget
from headrace.store.contract import Compaction, FileKind, Seal, Write, of_kind
from headrace.store.kept import I64, Flags, KeptLayout, ordered, pieces_of, taken, times_in
from headrace.store.kept_groups import groups_of
from headrace.store.kept_results import computation_of
from headrace.store.run import U64, Run
from headrace.store.segment import Segment
from headrace.store.session import SessionStore, session_kinds

CHUNK_ROWS = 1 << 16
_FOREVER_US = (1 << 62) - 1


def aur_kinds(spec: OperatorSpec) -> tuple[FileKind, ...]:
    """The kinds of segments that the store writes."""
    return (*session_kinds(spec), log_kind(KeptLayout(spec)))


class HalfBudget(MemoryBudget):
    """Half of a partition's share, for its sessions."""

    def __init__(self, whole: MemoryBudget) -> None:
        super().__init__(0)
        self._whole = whole

    @property
    def share_bytes(self) -> int:
        return self._whole.share_bytes // 2


class AurStore:
    """Sessions of one partition with their rows."""

    def __init__(
        self,
        spec: OperatorSpec,
        budget: MemoryBudget,
        seal: Seal,
        segments: list[Segment],
        watermark_us: int | None,
        known_keys: int = 0,
    ) -> None:
        self.spec, self.budget, self.segments = spec, budget, segments
        self.layout = KeptLayout(spec)
        kept = [segment for segment in segments if segment.kind != LOG]
        self.sessions = SessionStore(spec, HalfBudget(budget), seal, kept, watermark_us, known_keys)
        self.log = RowLog(self.layout, of_kind(segments, LOG))
        self.buffer = PrefetchBuffer(self.layout)
        self.prefetch_hits = self.prefetch_misses = 0  # sessions since the store was opened
        self._horizon_us: int | None = None  # no live session has an earlier row; None: not known
        self._ahead_us: int | None = None  # what was read ahead has ended by then
        self._compacted_us: int | None = None  # the watermark of the last compaction of the log
        self._ended = 0  # sessions that ended in the last epoch
        self._row_bytes = 8 * (self.layout.width + 1)  # as last seen

    @property
    def seal(self) -> Seal:
        return self.sessions.seal

    @seal.setter
    def seal(self, seal: Seal) -> None:
        self.sessions.seal = seal

    @property
    def watermark_us(self) -> int | None:
        return self.sessions.watermark_us

    @watermark_us.setter
    def watermark_us(self, watermark_us: int | None) -> None:
        self.sessions.watermark_us = watermark_us

    @property
    def late_rows(self) -> int:
        return self.sessions.late_rows

    @late_rows.setter
    def late_rows(self, late_rows: int) -> None:
        self.sessions.late_rows = late_rows

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        rows = self.sessions.timely(rows)
        if rows.num_rows:
            self.sessions.fold(rows)
            self.log.add(pieces_of(self.layout, rows))
            self._make_room()

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def memory_bytes(self) -> int:
        log = self.log
        return (
            self.sessions.memory_bytes
            + log.index_bytes
            + log.fresh_bytes
            + log.held_bytes
            + self.buffer.nbytes
        )

    def keys_after(self, watermark_us: int | None) -> int:
        return self.sessions.keys_after(watermark_us)

    def _make_room(self) -> None:
        """Let go of rows that are on disk too; write the epoch's rows where they are too many."""
        share, log = self.budget.share_bytes, self.log
        over = self.memory_bytes - share
        if over > 0:
            log.let_go(max(0, log.held_bytes - over - share // 8))
        # Ordering rows takes as much memory again.
        if log.fresh_bytes > share // 4:
            log.spill(self.seal)
        if self.memory_bytes > share:
            self.buffer.clear()
        if self.memory_bytes > share:
            log.release()

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        compute, ended = computation_of(self.layout), 0
        layout, gap = self.sessions.layout, self.sessions.layout.window.width_us
        for sessions in self._closing(watermark_us):
            ended += len(sessions)
            for rows, of_row in self._rows_of(sessions, watermark_us):
                firsts, ends = layout.firsts(sessions)[of_row], layout.lasts(sessions)[of_row] + gap
                yield from compute(*groups_of(self.layout, rows, firsts, ends))
        self._ended = ended

    def _closing(self, watermark_us: int | None) -> Iterator[Run]:
        """Sessions to emit, ordered by hash, as many at once as have a bounded number of rows."""
        limit = max(1, min(CHUNK_ROWS, self.budget.share_bytes // 8 // self._row_bytes))
        for run in self.sessions.closing(watermark_us):
            run = ordered(run)
            parts = (np.cumsum(self.sessions.layout.counts(run)) - 1) // limit
            for part in np.split(np.arange(len(run)), np.flatnonzero(np.diff(parts)) + 1):
                yield Run(run.hashes[part], run.words[part], run.heap)

    def _rows_of(self, sessions: Run, watermark_us: int | None) -> Iterator[tuple[Run, I64]]:
        """The rows of the sessions, ordered by hash, and the session of each; some sessions at a time."""
        hashes = np.unique(sessions.hashes)
        if not self.log.on_disk:
            yield self._matched(sessions, self.log.read(hashes), np.ones(len(sessions), np.bool_))
            return
        ahead = self.buffer.rows_of(hashes)
        whole = self._whole(sessions, ahead)
        if whole.any():
            yield self._matched(sessions, ahead, whole)
        self.buffer.drop(hashes)  # used, or grown since
        self.prefetch_hits += int(np.count_nonzero(whole))
        self.prefetch_misses += int(np.count_nonzero(~whole))
        if not whole.all():
            missed = np.unique(sessions.hashes[~whole])
            each = self.sessions.layout.counts(sessions).mean() * self._row_bytes
            nearest = self._next(max(len(missed), self._ended), int(each), watermark_us)
            yield self._matched(sessions, self._read(missed, nearest), ~whole)

    def _whole(self, sessions: Run, rows: Run) -> Flags:
        """Which sessions have all their rows here."""
        of_row = sessions_of(self.sessions.layout, self.layout, sessions, rows)
        counts = np.bincount(of_row[of_row >= 0], minlength=len(sessions))
        whole: Flags = counts == self.sessions.layout.counts(sessions)
        return whole

    def _matched(self, sessions: Run, rows: Run, wanted: Flags) -> tuple[Run, I64]:
        of_row = sessions_of(self.sessions.layout, self.layout, sessions, rows)
        kept = (of_row >= 0) & wanted[of_row]
        found, of_kept = taken(self.layout, rows, kept), of_row[kept]
        counts = np.bincount(of_kept, minlength=len(sessions))
        if (counts != self.sessions.layout.counts(sessions))[wanted].any():
            raise StateCorrupt(
                f"the log of operator {self.spec.name!r} does not have the rows that its sessions count",
                hint="go back to an older version of the state, and say what happened before",
            )
        return found, of_kept

    def _read(self, missed: U64, ahead: U64) -> Run:
        """The rows of hashes from all of the log; those of `ahead` come with them, into the buffer."""
        ahead = ahead[~np.isin(ahead, missed)]
        rows = self.log.read(np.union1d(missed, ahead))
        self._row_bytes = rows.nbytes // max(1, len(rows))
        if len(ahead):
            self.buffer.put(pick(rows, ahead), self._buffer_max)
        return pick(rows, missed)

    @property
    def _buffer_max(self) -> int:
        return self.budget.share_bytes // 4

    def _next(self, missed: int, bytes_of_one: int, watermark_us: int | None) -> U64:
        """Hashes of the sessions that are expected to end next."""
        sessions, layout = self.sessions, self.sessions.layout
        live, room = sessions.keys_after(watermark_us), self._buffer_max - self.buffer.nbytes
        many = many_ahead(self.spec.read_ratio, live, missed, room, bytes_of_one)
        if many == 0 or watermark_us is None:
            return np.empty(0, np.uint64)
        asked = many + len(self.buffer)
        ends, hashes = sessions.table.nearest(layout.closed_through(watermark_us), asked)
        found = [(ends + layout.window.width_us, hashes), *self._next_on_disk(asked, watermark_us)]
        ends, hashes = (np.concatenate(parts) for parts in zip(*found, strict=True))
        lacking = self.buffer.lacks(hashes)
        ends, hashes = ends[lacking], hashes[lacking]
        if len(ends) > many:
            nearest = np.argpartition(ends, many - 1)[:many]
            ends, hashes = ends[nearest], hashes[nearest]
        self._ahead_us = max(self._ahead_us or watermark_us, int(ends.max(initial=watermark_us)))
        return np.unique(hashes)

    def _next_on_disk(self, many: int, watermark_us: int) -> Iterator[tuple[I64, U64]]:
        """Ends and hashes of sessions that are not in memory, by their timers."""
        sessions = self.sessions
        if sessions.is_complete:
            return
        held = of_kind([*sessions.segments, *sessions.spilled], timers.TIMERS)
        for ends, hashes in timers.coming(held, watermark_us, many):
            absent = ~sessions.table.holds(hashes)
            yield ends[absent], hashes[absent]
            many -= int(np.count_nonzero(absent))
            if many <= 0:
                return

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def gather(self, watermark_us: int | None) -> Write:
        sessions, dead = self.sessions, self.sessions.layout.dead_through(watermark_us)
        self._horizon_us = None
        if sessions.is_complete:
            oldest = sessions.table.oldest(dead)
            self._horizon_us = _FOREVER_US if oldest is None else oldest

        def alive(run: Run) -> Flags:
            times = times_in(self.layout, run)
            found: Flags = times > dead
            old = np.flatnonzero(~found)
            if len(old):
                found[old] = sessions.table.covers(run.hashes[old], times[old], dead)
            return found

        write_sessions, write_log = sessions.gather(watermark_us), self.log.gather(alive, self.seal)
        return lambda: [*write_sessions(), *write_log()]

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self.sessions.settle([segment for segment in segments if segment.kind != LOG], watermark_us)
        self.log.settle(of_kind(segments, LOG))
        self.segments = segments
        if self._ahead_us is not None and watermark_us is not None and watermark_us >= self._ahead_us:
            self.buffer.clear()
        self._make_room()

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        if segment.kind != LOG:
            return self.sessions.is_live(segment, watermark_us)
        return self._horizon_us is None or last_time(segment) >= self._horizon_us

    def compaction(self, many: int | None = None) -> Compaction | None:
        return self._log_compaction(many) or self.sessions.compaction(many)

    def _log_compaction(self, many: int | None) -> Compaction | None:
        segments, layout, mark = self.log.segments, self.sessions.layout, self.watermark_us
        dead = layout.dead_through(mark)
        past = [last_time(segment) <= dead for segment in segments]
        since = None if mark is None or self._compacted_us is None else mark - self._compacted_us
        rested = since is None or since >= layout.window.width_us + layout.window.lateness_us
        picked = chosen([s.rows for s in segments], [s.size for s in segments], past, rested)
        if picked is None or (many is not None and len(segments) <= many):
            return None
        self._compacted_us = mark
        inputs, metadata = tuple(segments[picked]), of_kind(self.segments, session_rows.ROWS)[::-1]

        def write(path: Path, stop: threading.Event) -> bool:
            return compact_log(layout, self.layout, inputs, metadata, path, dead, stop)

        return Compaction(inputs, log_kind(self.layout), write)
