"""Reading the rows of sessions that end: from memory, from what was read ahead, or from the log.

Sessions are taken in the order of their hashes, in parts of a bounded number of rows, so that a block of
the log is read once for all of them. When much of a part must be read from disk, more is read with it into
the prefetch buffer: rows of sessions in the same range of hashes that are expected to end next. By rate,
nothing is read ahead while the page cache has the log. Read alone, each session is read by itself.
Invariant: rows that were read ahead are used only where they are all that the session counts.
Threads: the partition's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise

import numpy as np

from headrace.errors import StateCorrupt
from headrace.kernels.sessions.rows import among
from headrace.plan.reading import Reading
from headrace.row.arrays import I64, U64, Flags
from headrace.row.chunks import READ_ROWS
from headrace.row.run import Run
from headrace.store.append.kept_store import CHUNK_BYTES_MIN
from headrace.store.aur.buffer import PrefetchBuffer, many_ahead, soonest
from headrace.store.aur.compact import sessions_of
from headrace.store.aur.log import RowLog
from headrace.store.aur.resident import pick
from headrace.store.base.files import of_kind
from headrace.store.base.room import PREFETCHED_MAX, READ_CHUNK
from headrace.store.base.share import Share
from headrace.store.rows.kept_layout import KeptLayout, ordered, subset
from headrace.store.rows.take import rows_at, rows_where
from headrace.store.sessions import timers
from headrace.store.sessions.rows import distinct
from headrace.store.sessions.store import SessionStore, timer_shape

MISSED_MANY = 0.25  # of a part, before reading ahead pays: a few stragglers are read alone

TIMER_READS_MAX = 4


@dataclass(frozen=True)
class Part:
    """Some sessions that end, their rows ordered by hash, and the session of each row."""

    sessions: Run
    rows: Run
    of_row: I64


@dataclass
class SessionReader:
    """Finds the rows of sessions; the counts are of sessions, since the store was opened."""

    layout: KeptLayout
    sessions: SessionStore
    log: RowLog
    share: Share
    hits: int = 0  # ended, with all rows in the prefetch buffer
    misses: int = 0  # ended, and read from disk then
    ahead: int = 0  # read ahead
    seen_us: int | None = None  # the latest event time so far
    ahead_us: int | None = None  # what was read ahead has ended by then
    buffer: PrefetchBuffer = field(init=False)

    def __post_init__(self) -> None:
        self.buffer = PrefetchBuffer(self.layout)
        self._row_bytes = 8 * (self.layout.width + 1)  # as last seen
        self._reading = Reading(self.layout.spec.read_by, self.layout.spec.read_ratio)

    def parts(self, ending: Run, watermark_us: int | None, room: int) -> Iterator[Part]:
        """The rows of sessions that end, which are ordered by hash; `room` is memory to read into."""
        if self.log.on_disk:
            self.log.take_back(room)
        if not self.log.on_disk:
            layout = self.sessions.layout
            for sessions, _ in self._cut(ending):
                times = int(layout.firsts(sessions).min()), int(layout.lasts(sessions).max())
                yield self._matched(sessions, self.log.read_held(distinct(sessions.order), *times))
        elif self._reading.by == "alone":
            yield from self._one_by_one(ending)
        else:
            yield from self._together(ending, watermark_us)

    def _one_by_one(self, ending: Run) -> Iterator[Part]:
        """Each session is read by itself, in the order in which they end."""
        by_end = np.argsort(self.sessions.layout.lasts(ending), kind="stable")
        for part, _ in self._cut(rows_at(ending, by_end)):
            sessions = ordered(part)
            hashes = distinct(sessions.order)
            lasts = self.sessions.layout.lasts(sessions)[np.searchsorted(sessions.order, hashes)]
            self.misses += len(sessions)
            yield self._matched(sessions, self.log.read(hashes, np.argsort(lasts, kind="stable")))

    def _together(self, ending: Run, watermark_us: int | None) -> Iterator[Part]:
        """Sessions of a range of hashes in one scan, with those that end next; or from an earlier scan."""
        nearest: U64 | None = None
        for sessions, until in self._cut(ending):
            hashes = distinct(sessions.order)
            buffered = self.buffer.rows_of(hashes)
            whole = self._whole(sessions, buffered)
            if whole.any():
                yield self._matched(rows_where(sessions, whole), buffered)
            missed = rows_where(sessions, ~whole)
            self.buffer.drop(hashes, distinct(missed.order))
            self.hits, self.misses = self.hits + len(sessions) - len(missed), self.misses + len(missed)
            if len(missed) > MISSED_MANY * len(sessions) and nearest is None:
                nearest = self._nearest(ending, watermark_us)
            if len(missed):
                yield self._matched(missed, self._read(distinct(missed.order), nearest, until))

    def _cut(self, ending: Run) -> Iterator[tuple[Run, int]]:
        """Parts with a bounded number of rows, and the hash at which the next part begins."""
        room = max(CHUNK_BYTES_MIN, READ_CHUNK.of(self.share))
        limit = max(1, min(READ_ROWS, room // self._row_bytes))
        numbers = (np.cumsum(self.sessions.layout.counts(ending)) - 1) // limit
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(ending)]
        for begin, end in pairwise(bounds):
            until = int(ending.order[end]) if end < len(ending) else 1 << 64
            yield Run(ending.order[begin:end], ending.words[begin:end], ending.heap), until

    def _whole(self, sessions: Run, rows: Run) -> Flags:
        """Which sessions have all their rows here."""
        of_row = sessions_of(self.sessions.layout, self.layout, sessions, rows)
        counts = np.bincount(of_row[of_row >= 0], minlength=len(sessions))
        whole: Flags = counts == self.sessions.layout.counts(sessions)
        return whole

    def _matched(self, sessions: Run, rows: Run) -> Part:
        of_row = sessions_of(self.sessions.layout, self.layout, sessions, rows)
        kept = of_row >= 0
        part = Part(sessions, subset(self.layout, rows, kept), of_row[kept])
        counts = np.bincount(part.of_row, minlength=len(sessions))
        if (counts != self.sessions.layout.counts(sessions)).any():
            raise StateCorrupt(
                f"the log of {self.layout.spec.name!r} does not have the rows that its sessions count",
                hint="go back to an older version of the state, and report what happened before",
            )
        return part

    # ── from disk ────────────────────────────────────────────────────────────────────────────

    def _read(self, missed: U64, nearest: U64 | None, until: int) -> Run:
        """The rows of hashes from all of the log; those of the nearest below `until` come with them."""
        ahead = np.empty(0, np.uint64)
        if nearest is not None:
            ahead = nearest[nearest <= np.uint64(until - 1)] if until else nearest[:0]
            ahead = ahead[self.buffer.lacks(ahead) & ~among(ahead, missed)]
        rows = self.log.read(np.sort(np.concatenate([missed, ahead])))
        self._row_bytes = max(1, rows.nbytes // max(1, len(rows)))
        if len(ahead):
            self.ahead += self.buffer.put(pick(rows, ahead), self.buffer_max)
        return pick(rows, missed)

    @property
    def buffer_max(self) -> int:
        return PREFETCHED_MAX.of(self.share)

    def _nearest(self, ending: Run, watermark_us: int | None) -> U64:
        """Hashes of the sessions that are expected to end next, in order; those in the buffer left out."""
        store, layout = self.sessions, self.sessions.layout
        each = int(layout.counts(ending).mean() * self._row_bytes)
        live, room = store.keys_after(watermark_us), self.buffer_max - self.buffer.nbytes
        many = many_ahead(self._reading, live, len(ending), room, each)
        if many == 0 or watermark_us is None or (self._reading.by == "rate" and self.log.is_cached()):
            return np.empty(0, np.uint64)
        wanted = many + len(self.buffer)
        in_memory = store.table.nearest(layout.closed_through(watermark_us), wanted)
        nearest = [in_memory, *self._nearest_on_disk(wanted, watermark_us)]
        ends, hashes = (np.concatenate(parts) for parts in zip(*nearest, strict=True))
        lacking = np.flatnonzero(self.buffer.lacks(hashes))
        chosen = lacking[soonest(ends[lacking], many, int(self._reading.ratio * live), self.seen_us)]
        ends, hashes = ends[chosen], hashes[chosen]
        self.ahead_us = max(self.ahead_us or watermark_us, int(ends.max(initial=watermark_us)))
        return distinct(hashes)

    def _nearest_on_disk(self, many: int, watermark_us: int) -> Iterator[tuple[I64, U64]]:
        """Ends and hashes of sessions that are not in memory, by their timers."""
        store = self.sessions
        if store.is_complete:
            return
        segments = of_kind([*store.segments, *store.spilled], timers.TIMERS)
        coming = timers.coming(segments, watermark_us, many, timer_shape(self.layout.spec))
        for ends, hashes in islice(coming, TIMER_READS_MAX):
            absent = ~store.table.holds(hashes)
            yield ends[absent], hashes[absent]
            many -= int(np.count_nonzero(absent))
            if many <= 0:
                return
