"""The store of joins without a window: rows of both sides by key, in buckets of time.

    fresh rows with stored and fresh rows of the other side ─▶ pairs
    rows that the watermark passes, without any partner  ─▶ outer and anti rows

Invariants: a pair comes out in the epoch of its later row, once. No row is ever marked as matched: a row
that expires is compared with its partners again, which are stored for so long. Rows are appended, and
their buckets are dropped as a whole.
Threads: as `store.base.contract` describes; a reader thread of `results` reads segments one step ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.plan.spec import LEFT, RIGHT, OperatorSpec
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.row.arrays import U64, Flags
from headrace.row.chunks import READ_ROWS
from headrace.row.run import Run
from headrace.store.append.bucket_store import BucketStore
from headrace.store.append.merge import concatenated, packed
from headrace.store.append.read_ahead import read_ahead
from headrace.store.base.ahead_counts import AheadCounts
from headrace.store.base.room import RESIDENT_MAX, excess_bytes, fits
from headrace.store.base.waits import StateWaits
from headrace.store.pairs.ahead import OTHER, PairsAhead
from headrace.store.pairs.matching import Matching
from headrace.store.pairs.output import Output
from headrace.store.pairs.sections import is_dead, newest, overlapping, section_of
from headrace.store.rows.kept_layout import KeptLayout, ordered, pieces_of, sides_in, subset, times_in
from headrace.store.segments.reader import Segment

_STORED_TO_MEMORY = 2  # a section takes about twice its stored size while it is loaded


class HashOrder:
    """Rows of a section by hash; an `Arrangement`."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.layout = KeptLayout(spec)

    def arranged(self, run: Run) -> Run:
        return ordered(run)


@dataclass(frozen=True)
class Part:
    """Which rows are read: those from before this epoch, those of this epoch, or both."""

    old: bool
    fresh: bool


ALL, OLD, FRESH = Part(True, True), Part(True, False), Part(False, True)


@dataclass
class PairStore(BucketStore):
    """State of one partition; `spec.work` is a `StreamJoin`."""

    matching: Matching = field(init=False)
    output: Output = field(init=False)
    ahead: PairsAhead = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.matching = Matching(self.order.layout, self._work)
        self.output = Output(self.order.layout, self._work)
        self.ahead = PairsAhead(self.order.layout, self._work, self.share)

    @property
    def _work(self) -> StreamJoin:
        assert isinstance(self.spec.work, StreamJoin)
        return self.spec.work

    def is_dead(self, bucket: int, watermark_us: int | None) -> bool:
        if self._work.generation is not None and bucket < newest(self._work, _sections(self.segments)):
            return True
        return is_dead(self._work, bucket, watermark_us)

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        """An older generation goes in the commit that brings a newer one."""
        if self._work.generation is not None and max(segment.sections) < self._newest:
            return False
        return super().is_live(segment, watermark_us)

    @property
    def _newest(self) -> int:
        """The section of the newest generation, that of the running epoch included."""
        known = (*self._fresh, *_sections(self.spilled), *_sections(self.segments))
        return newest(self._work, known)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        super().settle(segments, watermark_us)
        self.ahead.lookahead.settled(lambda _: True)

    # ── reading ahead ────────────────────────────────────────────────────────────────────────

    @property
    def needed_bytes(self) -> int:
        return super().memory_bytes

    @property
    def memory_bytes(self) -> int:
        return self.needed_bytes + self.ahead.lookahead.nbytes

    def _make_room(self) -> None:
        self._evict()
        if not fits(self):
            self.ahead.lookahead.drop()
        super()._make_room()

    @property
    def takes_hints(self) -> bool:
        return self.ahead.lookahead.is_on

    def waited(self) -> StateWaits:
        return self.ahead.waits

    def look_ahead(self, threads: Executor | None) -> None:
        self.ahead.use(threads, self)

    def expect(self, rows: pa.RecordBatch) -> None:
        self.ahead.expect(rows, self)

    def ahead_counts(self) -> AheadCounts:
        return self.ahead.lookahead.counts

    def is_resident(self, place: tuple[Segment, int]) -> bool:
        """Whether memory has the section."""
        return place[1] in self._resident.get(place[0], {})

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        """Adds rows; late ones are dropped and counted."""
        layout = self.order.layout
        run = pieces_of(layout, rows)
        if self.watermark_us is not None and self.spec.timed and self.spec.delays_ms:
            timely = times_in(layout, run) > self.watermark_us
            if not timely.all():
                self.late_rows += len(run) - int(np.count_nonzero(timely))
                run = subset(layout, run, timely)
        sides = (sides_in(layout, run) & np.uint64(1)).view(np.int64)
        self.add_rows(run, section_of(self._work, self.matching.stored_times(run, sides), sides))

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        work = self._work
        if work.meets != "both":
            yield from self._looking_back(watermark_us)
            return
        if work.how == "semi":
            yield from self._first_matches()
        elif work.how != "anti":
            yield from self._new_pairs(LEFT, ALL)
            yield from self._new_pairs(RIGHT, OLD)
        for side in (LEFT, RIGHT):
            if work.keeps_alone(side):
                for run in self._expiring(side, watermark_us):
                    unmatched = subset(self.order.layout, run, ~self._matched(side, run, ALL))
                    yield from self.output.rows(side, unmatched)

    def _looking_back(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """Left rows, each once, with the right rows that are stored when its moment comes."""
        at_once = self._work.meets == "arrival"
        probes = self._reading(LEFT, FRESH) if at_once else self._expiring(LEFT, watermark_us)
        for rows in probes:
            if self._work.returns_right:
                yield from self._pairs(LEFT, rows, ALL)
            if self._work.how != "inner":
                wanted = self._matched(LEFT, rows, ALL) == (self._work.how == "semi")
                yield from self.output.rows(LEFT, subset(self.order.layout, rows, wanted))

    def _new_pairs(self, side: int, part: Part) -> Iterator[pa.RecordBatch]:
        """Pairs of this epoch's rows of a side with a part of the other side's rows."""
        for rows in self._reading(side, FRESH):
            yield from self._pairs(side, rows, part)

    def _pairs(self, side: int, rows: Run, part: Part) -> Iterator[pa.RecordBatch]:
        for partners in self._partners(side, rows, part):
            for mine, theirs in self.matching.pairs(side, rows, partners):
                yield from self.output.pairs({side: (rows, mine), OTHER[side]: (partners, theirs)})

    def _first_matches(self) -> Iterator[pa.RecordBatch]:
        """Left rows that have a partner now and had none before."""
        layout = self.order.layout
        for rows in self._reading(LEFT, FRESH):
            yield from self.output.rows(LEFT, subset(layout, rows, self._matched(LEFT, rows, ALL)))
        hashes = [rows.order for rows in self._reading(RIGHT, FRESH)]
        if not hashes:
            return
        for rows in self._reading(LEFT, OLD, np.unique(np.concatenate(hashes))):
            new = subset(layout, rows, self._matched(LEFT, rows, FRESH))
            first = ~self._matched(LEFT, new, OLD)
            yield from self.output.rows(LEFT, subset(layout, new, first))

    def _expiring(self, side: int, watermark_us: int | None) -> Iterator[Run]:
        """Rows of a side that the watermark passes in this epoch."""
        expires_us = self._work.expires_us(side)
        if expires_us is None or watermark_us is None:
            return
        last = watermark_us - expires_us
        yield from self._between(side, FRESH, None, last)
        first = None if self.watermark_us is None else self.watermark_us - expires_us + 1
        yield from self._between(side, OLD, first, last)

    def _between(self, side: int, part: Part, first_us: int | None, last_us: int) -> Iterator[Run]:
        layout = self.order.layout
        for run in self._reading(side, part, None, first_us, last_us):
            times = times_in(layout, run)
            due = times <= last_us if first_us is None else (times <= last_us) & (times >= first_us)
            if due.any():
                yield subset(layout, run, due)

    # ── matching ─────────────────────────────────────────────────────────────────────────────

    def _matched(self, side: int, rows: Run, part: Part) -> Flags:
        """Which rows have a partner in a part of the other side's rows."""
        matched: Flags = np.zeros(len(rows), np.bool_)
        for partners in self._partners(side, rows, part):
            self.matching.mark(side, rows, partners, matched)
        return matched

    def _partners(self, side: int, rows: Run, part: Part) -> Iterator[Run]:
        """Runs that have all rows of the other side that these rows can match."""
        if not len(rows):
            return
        first, last = self.matching.partner_times(side, rows)
        if self._work.generation is not None:
            first = last = self._newest
        partners = self._reading(OTHER[side], part, np.unique(rows.order), first, last)
        yield from self.ahead.counted(len(rows), partners)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def _reading(
        self,
        side: int,
        part: Part,
        hashes: U64 | None = None,
        first_us: int | None = None,
        last_us: int | None = None,
    ) -> Iterator[Run]:
        """Rows of a side as runs ordered by hash, at least those of the hashes and times."""
        distant: list[tuple[Segment, int]] = []
        if part.fresh:
            for section in overlapping(self._work, self._fresh, side, first_us, last_us):
                yield self._arranged(section)
            distant += self._in(self.spilled, side, first_us, last_us)
        if part.old:
            for segment, section in self._in(self.segments, side, first_us, last_us):
                run = self._resident_run(segment, section)
                if run is None:
                    distant.append((segment, section))
                elif len(run):
                    yield run
        if distant and hashes is None:
            yield from filter(len, read_ahead(_stored(distant)))  # clipped ones may have no row
        elif distant and hashes is not None:
            yield from filter(len, self.ahead.reading(distant, hashes))

    def _in(
        self, segments: list[Segment], side: int, first_us: int | None, last_us: int | None
    ) -> list[tuple[Segment, int]]:
        return [
            (segment, section)
            for segment in segments
            for section in overlapping(self._work, segment.sections, side, first_us, last_us)
        ]

    def _resident_run(self, segment: Segment, section: int) -> Run | None:
        """The rows of a committed section from memory, loaded if there is room; None if not."""
        source = self._source(segment, section)
        if isinstance(source, Run):
            return source
        entry = segment.sections[section]
        if excess_bytes(self, RESIDENT_MAX) + _STORED_TO_MEMORY * (entry.index - entry.start) > 0:
            return None
        layout = self.order.layout
        run = packed(concatenated([*segment.scan(section, READ_ROWS)], layout), layout)
        segment.release(section)
        self._resident.setdefault(segment, {})[section] = run
        self._resident_bytes += run.nbytes
        return run


def _sections(segments: list[Segment]) -> Iterator[int]:
    return (section for segment in segments for section in segment.sections)


def _stored(sections: list[tuple[Segment, int]]) -> Iterator[Run]:
    for segment, section in sections:
        yield from segment.scan(section, READ_ROWS)
