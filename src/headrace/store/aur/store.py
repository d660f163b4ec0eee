"""The AUR store (append, unaligned read): rows of sessions, kept until their own session is over.

    rows ─▶ sessions (`SessionStore`: bounds and counts)     rows ─▶ data log (`RowLog`)
    watermark ─▶ sessions that end ─▶ their rows, from memory, the prefetch buffer or the log ─▶ groups

Invariants: the log has every row of every live session, once. A session is expected to end `gap` after its
last row; when rows must be read from disk, those of sessions that are expected to end next come with them.
Threads: as in `store.contract`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.plan.reading import ReadAhead
from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import Flags
from headrace.row.run import Run
from headrace.store.append.merge import concatenated
from headrace.store.aur.compact import (
    SEGMENTS_HELD_MAX,
    SEGMENTS_MAX,
    Alive,
    LogCompaction,
    chosen,
    stored_alive,
)
from headrace.store.aur.log import FEW_BYTES, LOGS, Rewritten, RowLog, log_kinds, logs_of
from headrace.store.aur.read import SessionReader
from headrace.store.aur.resident import last_time
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files, Gathered, of_kind
from headrace.store.base.jobs import Compaction, Job
from headrace.store.base.room import (
    LOG_EVICT_MORE,
    LOG_FRESH_MIN,
    READ_CHUNK,
    RESIDENT_MAX,
    SESSIONS,
    excess_bytes,
    make_room,
    no_growth,
)
from headrace.store.base.share import PartialShare, Share
from headrace.store.base.waits import StateWaits
from headrace.store.rows.groups import Computations, groups_of
from headrace.store.rows.kept_layout import KeptLayout, match_times_in, ordered, pieces_of, times_in
from headrace.store.rows.slices import times_of
from headrace.store.segments.reader import Segment
from headrace.store.sessions import rows as session_rows
from headrace.store.sessions.store import SessionStore, session_kinds

_FOREVER_US = (1 << 62) - 1


def aur_kinds(spec: OperatorSpec) -> tuple[FileKind, ...]:
    """The kinds of segments that the store writes."""
    return (*session_kinds(spec), *log_kinds(KeptLayout(spec)))


class AurStore(Store):
    """Sessions of one partition with their rows."""

    def __init__(
        self,
        spec: OperatorSpec,
        share: Share,
        files: Files,
        segments: list[Segment],
        watermark_us: int | None,
        known_keys: int,
        computations: Computations,
    ) -> None:
        self._computations = computations
        self.spec, self.share, self.segments = spec, share, segments
        self.layout = KeptLayout(spec)
        kept = [segment for segment in segments if segment.kind not in LOGS]
        part = PartialShare(share, SESSIONS)
        self.sessions = SessionStore(spec, part, files, kept, watermark_us, known_keys)
        self.log = RowLog(self.layout, logs_of(segments))
        self.reader = SessionReader(self.layout, self.sessions, self.log, share)
        self._horizon_us: int | None = None  # no live session has an earlier row; None: not known
        self.compacted_us: dict[str, int | None] = {}  # watermark of the compaction that was adopted last

    @property
    def files(self) -> Files:
        return self.sessions.files

    @files.setter
    def files(self, files: Files) -> None:
        self.sessions.files = files

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

    def waited(self) -> StateWaits:
        return self.sessions.waits

    @property
    def looks_up(self) -> bool:
        return self.sessions.looks_up

    @property
    def read_ahead(self) -> ReadAhead:
        reader = self.reader
        return ReadAhead(reader.hits, reader.misses, reader.ahead, reader.buffer.in_vain)

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        rows = self.sessions.timely(rows)
        if rows.num_rows:
            self.reader.seen_us = max(self.reader.seen_us or 0, int(times_of(rows).max()))
            self.sessions.fold(rows)
            rows = self.sessions.layout.with_match_times(rows, self.watermark_us)
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
            + log.resident.nbytes
            + log.rewritten.run.nbytes
            + self.reader.buffer.nbytes
        )

    @property
    def _room(self) -> int:
        """Memory for rows that are on disk too; a quarter of the share is left for the next batches."""
        return -excess_bytes(self, RESIDENT_MAX)

    def keys_after(self, watermark_us: int | None) -> int:
        return self.sessions.keys_after(watermark_us)

    def _make_room(self) -> None:
        """Evicts rows that are on disk too; spills the epoch's rows where they are too many."""
        log = self.log  # ordering its rows takes as much memory again
        make_room(self, lambda: log.fresh_bytes, self._evict_resident, self.spill)
        make_room(self, no_growth, log.release)
        make_room(self, lambda: -self.sessions.overdrawn_bytes, self.reader.buffer.clear)

    def _evict_resident(self) -> None:
        over, log = excess_bytes(self), self.log
        if over > 0:
            log.evict_to(max(0, log.resident.nbytes - over - LOG_EVICT_MORE.of(self.share)))

    def spill(self) -> None:
        if self.log.fresh_bytes > LOG_FRESH_MIN.of(self.share):
            self.log.spill(self.files)

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        compute, layout = self._computations(self.layout), self.sessions.layout
        for ending in self._closing(watermark_us):
            for part in self.reader.parts(ending, watermark_us, self._room):
                firsts = layout.firsts(part.sessions)[part.of_row]
                ends = layout.lasts(part.sessions)[part.of_row] + layout.window.width_us
                yield from compute(*groups_of(self.layout, part.rows, firsts, ends))

    def _closing(self, watermark_us: int | None) -> Iterator[Run]:
        """Sessions to emit, ordered by hash, as many at once as memory allows."""
        waiting: list[Run] = []
        for run in self.sessions.closing(watermark_us):
            waiting.append(run)
            if sum(part.nbytes for part in waiting) > READ_CHUNK.of(self.share):
                yield ordered(concatenated(waiting, self.sessions.layout.rows))
                waiting = []
        if waiting:
            yield ordered(concatenated(waiting, self.sessions.layout.rows))

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def gather(self, watermark_us: int | None) -> Gathered:
        sessions, dead = self.sessions, self.sessions.layout.dead_through(watermark_us)
        self._horizon_us = None
        if sessions.is_complete:
            oldest = sessions.table.oldest(dead)
            self._horizon_us = _FOREVER_US if oldest is None else oldest

        def alive(run: Run) -> Flags:
            times = times_in(self.layout, run)
            live: Flags = times > dead
            old = np.flatnonzero(~live)
            if len(old):
                at = match_times_in(self.layout, run)[old]
                live[old] = sessions.table.covers(run.order[old], at, dead)
            return live

        of_sessions, spilled = sessions.gather(watermark_us), tuple(self.log.spilled)
        sections = (*of_sessions.sections, *self.log.gather(alive))
        return Gathered(self.files, sections, (*of_sessions.spilled, *spilled))

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self.sessions.settle([segment for segment in segments if segment.kind not in LOGS], watermark_us)
        self.log.settle(logs_of(segments))
        self.segments = segments
        ahead_us = self.reader.ahead_us
        if ahead_us is not None and watermark_us is not None and watermark_us >= ahead_us:
            self.reader.buffer.clear()
        self._make_room()

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        if segment.kind not in LOGS:
            return self.sessions.is_live(segment, watermark_us)
        return self._horizon_us is None or last_time(segment) >= self._horizon_us

    def maintenance(self, many: int | None = None) -> Job | None:
        of_logs = (self._log_compaction(kind, many) for kind in log_kinds(self.layout))
        return next((one for one in of_logs if one is not None), None) or self.sessions.maintenance(many)

    def _log_compaction(self, kind: FileKind, many: int | None) -> Compaction | None:
        """What one instance of the log needs."""
        segments = of_kind(self.log.segments, kind.name)
        layout, mark = self.sessions.layout, self.watermark_us
        if not segments or (many is not None and len(segments) <= many):
            return None
        dead, before = layout.dead_through(mark), self.compacted_us.get(kind.name)
        past = [last_time(segment) <= dead for segment in segments]
        since = None if mark is None or before is None else mark - before
        rested = since is None or since >= layout.window.width_us + layout.window.lateness_us
        rows, sizes = [segment.rows for segment in segments], [segment.size for segment in segments]
        live = self._live_rows(dead) if rested and self.sessions.is_complete else None
        most = (SEGMENTS_MAX if self.log.on_disk else SEGMENTS_HELD_MAX) // self.spec.instances
        picked = chosen(rows, sizes, past, rested, self.spec.amplification, live, most)
        if picked is None:
            return None
        inputs = tuple(segments[picked])
        find, last_us = self.log.sources(inputs, self._room), max(map(last_time, inputs))
        alive = self._alive_later(dead)

        def write(path: Path, stop: threading.Event) -> bool:
            sources = find()
            written: list[Run] | None = None if any(isinstance(source, tuple) for source in sources) else []
            compaction = LogCompaction(self.layout, sources, last_us, alive)
            meta = compaction.write(path, stop, written)
            if meta is not None and written:
                self.log.rewritten = Rewritten(meta.checksum, concatenated(written, self.layout))
            return meta is not None

        def adopted() -> None:
            self.compacted_us[kind.name] = mark

        return Compaction(inputs, kind, write, adopted)

    def _alive_later(self, dead_through: int) -> Alive:
        """Which rows of the log are alive in this version, for a compaction to read while batches go on."""
        sessions, layout = self.sessions, self.layout
        if not sessions.is_complete or sessions.table.nbytes > FEW_BYTES:
            stored = of_kind(self.segments, session_rows.ROWS)[::-1]
            return stored_alive(sessions.layout, layout, stored, dead_through)
        covers = sessions.table.frozen_covers(dead_through)
        return Alive(lambda run: covers(run.order, match_times_in(layout, run)), in_order=False)

    def _live_rows(self, dead_through: int) -> int:
        """About how many rows of an instance belong to live sessions, which are all in memory."""
        return self.sessions.table.rows_kept(dead_through) // self.spec.instances
