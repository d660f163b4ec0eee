"""The data log of a store of sessions: rows as they came, ordered by hash, in segments that only grow old.

Rows are split by hash over instances, each with segments of its own kind, so that a compaction is short.
Invariants: a row is in one segment, or in the running epoch. The rows of a committed segment may also be
held in memory (`HeldRows`). A segment has one section, whose number is its latest time.
Threads: the partition's own; a compaction leaves what it wrote in `rewritten`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.row.arrays import I64, U64, Flags
from headrace.row.chunks import READ_ROWS
from headrace.row.run import Run
from headrace.store.append.merge import concatenated, no_rows
from headrace.store.aur.resident import HeldRows, last_time, pick, runs_of
from headrace.store.base.files import FileKind, Files, Sections
from headrace.store.rows.kept_layout import KeptLayout, ordered, subset, times_in
from headrace.store.segments.merge import Source
from headrace.store.segments.reader import Segment, index_bytes

LOGS = ("log", "log1", "log2", "log3")  # the kinds of the instances' segments
CACHED_SHARE = 0.9  # of the log in the page cache: reading ahead would only copy
FEW_BYTES = 16 << 20  # a compaction may always take that much memory beside the share


def log_kinds(layout: KeptLayout) -> tuple[FileKind, ...]:
    """Of all instances there may be: there may have been more of them than there are."""
    return tuple(FileKind(name, layout, appends=True) for name in LOGS)


def logs_of(segments: Sequence[Segment]) -> list[Segment]:
    """The segments of all instances, in their order."""
    return [segment for segment in segments if segment.kind in LOGS]


def split(layout: KeptLayout, run: Run, instances: int) -> list[tuple[FileKind, Run]]:
    """An ordered run by instance, as far as these have any rows of it."""
    kinds = log_kinds(layout)
    if instances == 1:
        return [(kinds[0], run)] if len(run) else []
    of_row = instance_of(run.order, instances)
    parts = ((kind, of_row == number) for number, kind in enumerate(kinds[:instances]))
    return [(kind, subset(layout, run, mine)) for kind, mine in parts if mine.any()]


def instance_of(hashes: U64, instances: int) -> U64:
    """The instance of each hash; a partition is a range of hashes, so their first bits do not differ."""
    spread = hashes * np.uint64(0x9E3779B97F4A7C15)
    numbers: U64 = (spread >> np.uint64(32)) * np.uint64(instances) >> np.uint64(32)
    return numbers


def sections_of(layout: KeptLayout, run: Run) -> Sections:
    return [(int(times_in(layout, run).max()), [run])]


@dataclass(frozen=True)
class Rewritten:
    """What a compaction wrote, until a commit names its segment; the checksum is the segment's."""

    checksum: int
    run: Run


@dataclass
class RowLog:
    """The kept rows of one partition."""

    layout: KeptLayout
    segments: list[Segment]
    spilled: list[Segment] = field(default_factory=list)
    rows_in: int = 0  # of the running epoch
    _fresh: list[Run] = field(default_factory=list)
    _arranged: bool = False
    _gathered: dict[str, Run] = field(default_factory=dict)  # rows of the epoch to be flushed, by kind
    fresh_bytes: int = 0
    resident: HeldRows = field(init=False)
    rewritten: Rewritten = field(init=False)

    def __post_init__(self) -> None:
        self.resident = HeldRows(self.layout)
        self.rewritten = self._nothing = Rewritten(0, no_rows(self.layout))

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def add(self, run: Run) -> None:
        self._fresh.append(run)
        self._arranged = False
        self.fresh_bytes += run.nbytes
        self.rows_in += len(run)

    def arranged(self) -> Run:
        """The rows of the running epoch that were not spilled, ordered by hash."""
        if not self._arranged:
            pieces, self._fresh = self._fresh, []
            run = concatenated(pieces, self.layout)
            pieces.clear()
            self._fresh, self._arranged = [ordered(run)], True
            self.fresh_bytes = self._fresh[0].nbytes
        return self._fresh[0]

    def spill(self, files: Files) -> None:
        """Write the rows of the running epoch, so that they leave memory."""
        for kind, run in self._split(self.arranged()):
            self.spilled.append(files.spill(kind, sections_of(self.layout, run)))
        self._fresh, self._arranged, self.fresh_bytes = [], False, 0

    # ── rows out ─────────────────────────────────────────────────────────────────────────────

    @property
    def rows(self) -> int:
        """Rows of all segments and of the running epoch, dead ones included."""
        stored = sum(segment.rows for segment in (*self.segments, *self.spilled))
        return stored + sum(map(len, self._fresh))

    @property
    def index_bytes(self) -> int:
        return index_bytes((*self.segments, *self.spilled))

    @property
    def on_disk(self) -> bool:
        """Whether a read may have to go to the disk."""
        return bool(self.spilled) or len(self.resident) < len(self.segments)  # no other ones are held

    def is_cached(self) -> bool:
        """Whether nearly all reads of the segments are served without the disk."""
        stored = [segment for segment in (*self.segments, *self.spilled) if segment not in self.resident]
        size = sum(segment.size for segment in stored)
        return sum(segment.resident_share() * segment.size for segment in stored) >= CACHED_SHARE * size

    def read(self, hashes: U64, turns: I64 | None = None) -> Run:
        """All rows of ordered, distinct hashes, ordered by hash; one scan for all, or each in its turn."""
        stored = (segment for segment in (*self.segments, *self.spilled) if segment not in self.resident)
        parts = [segment.rows_of(last_time(segment), hashes, turns) for segment in stored]
        return self._together([*parts, *self.resident.pick(hashes), pick(self.arranged(), hashes)])

    def read_held(self, hashes: U64, first_us: int, last_us: int) -> Run:
        """At least the rows of those times, of ordered, distinct hashes; all rows are in memory."""
        return self._together(
            [*self.resident.pick(hashes, first_us, last_us), pick(self.arranged(), hashes)]
        )

    def _together(self, parts: list[Run]) -> Run:
        filled = [subset(self.layout, part, slice(None)) for part in parts if len(part)]
        together = concatenated(filled, self.layout)
        return ordered(together) if len(filled) > 1 else together

    def sources(self, segments: Sequence[Segment], room: int) -> Callable[[], list[Source]]:
        """Where a compaction, in its thread, finds the rows of segments: in memory, if they are few.

        What it writes of those stays in memory, or the next batch would read it back: `room` is for it.
        """
        few = _rewritten_bytes(segments) <= max(FEW_BYTES, room)
        groups, in_memory = (
            self.resident.groups if few else [],
            {one for one in segments if few and one in self.resident},
        )
        stored = [(segment, last_time(segment)) for segment in segments if segment not in in_memory]
        return lambda: [*stored, *runs_of(self.layout, groups, in_memory)]

    def take_back(self, room: int) -> None:
        """Hold segments that fit again, such as those of a compaction or an earlier life; oldest first."""
        for segment in self.segments:
            if segment not in self.resident and _rewritten_bytes([segment]) <= room:
                runs = [*segment.scan(last_time(segment), READ_ROWS)]
                run = concatenated(runs, self.layout)
                self.resident.hold(segment, run)
                room -= run.nbytes
                segment.release(last_time(segment))

    def evict_to(self, bytes_max: int) -> None:
        """Evicts rows of committed segments beyond that many bytes."""
        self.rewritten = self._nothing
        self.resident.evict_to(bytes_max)

    def release(self) -> None:
        """Frees the memory of the indexes; the next use reads them again."""
        for segment in (*self.segments, *self.spilled):
            segment.release(last_time(segment))

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def gather(self, alive: Callable[[Run], Flags]) -> tuple[tuple[FileKind, Sections], ...]:
        """What is to be written of the running epoch: the rows that are alive."""
        run = self.arranged()
        wanted = alive(run)
        if not wanted.all():
            run = subset(self.layout, run, wanted)
        parts = self._split(run)
        self._gathered = {kind.name: part for kind, part in parts}
        return tuple((kind, sections_of(self.layout, part)) for kind, part in parts)

    def _split(self, run: Run) -> list[tuple[FileKind, Run]]:
        return split(self.layout, run, self.layout.spec.instances)

    def settle(self, segments: list[Segment]) -> None:
        known = {*self.segments, *self.spilled}
        newest = {segment.kind: segment for segment in segments}
        self.resident.keep(set(segments))
        for segment in segments:
            if segment not in known:
                self._hold_new(segment, segment is newest[segment.kind])
        self.segments, self.spilled, self._gathered = segments, [], {}
        self._fresh, self._arranged, self.fresh_bytes, self.rows_in = [], False, 0, 0

    def _hold_new(self, segment: Segment, newest: bool) -> None:
        """Hold the rows of a new segment, if it is what was gathered or rewritten."""
        run, rewritten = self._gathered.get(segment.kind), self.rewritten
        if newest and run is not None and _is_of(segment, self.layout, run):
            self.resident.hold(segment, run)
        elif len(rewritten.run) and segment.file.checksum == rewritten.checksum:
            self.resident.hold(segment, rewritten.run)
            self.rewritten = self._nothing


def _rewritten_bytes(segments: Sequence[Segment]) -> int:
    """What it takes to have the rows of segments as one run: they are collected, and put together."""
    return 2 * sum(segment.size for segment in segments)


def _is_of(segment: Segment, layout: KeptLayout, run: Run) -> bool:
    """Whether a new segment is the run that was gathered, and not what a compaction left."""
    if not len(run) or segment.rows != len(run):
        return False
    (entry,) = segment.sections.values()
    latest = int(times_in(layout, run).max())
    return (entry.slice, entry.min_hash, entry.max_hash) == (latest, run.order[0], run.order[-1])
