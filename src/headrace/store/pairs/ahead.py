"""How a join comes by the stored partners of its rows: those that were read ahead, then the others.

A hint is the hash of a row that will come, and its side. What is read is the other side's rows of that
hash, in the sections that memory does not have. A join that looks back reads for its left rows only.

Invariants: a hint changes no result. Rows that were read stay until the commit, because a row may be
matched twice in one epoch. `waits.rows` has each row that was matched, with its wait for its partners.
Threads: the partition's own; reads ahead run in the threads given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from headrace.plan.spec import LEFT, RIGHT, SIDE, TIME
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.row.arrays import U64, Flags
from headrace.row.run import Run
from headrace.store.ahead.hints import Hints, distinct
from headrace.store.ahead.lookahead import Lookahead
from headrace.store.ahead.sections import Place, SectionFetch
from headrace.store.append.read_ahead import read_ahead
from headrace.store.base.share import Share
from headrace.store.base.waits import StateWaits, WaitHistogram
from headrace.store.pairs.sections import newest, overlapping, side_of
from headrace.store.rows.arrow import hashes_in
from headrace.store.rows.kept_layout import KeptLayout
from headrace.store.rows.slices import times_of
from headrace.store.segments.reader import Segment, prepare

OTHER = {LEFT: RIGHT, RIGHT: LEFT}
T = TypeVar("T")


class Stored(Protocol):
    """The store, as far as its committed rows are concerned."""

    segments: list[Segment]

    def is_resident(self, place: Place) -> bool:
        """Whether memory has the section."""


@dataclass
class PairsAhead:
    """The reads of one store of a join."""

    layout: KeptLayout
    work: StreamJoin
    share: Share
    waits: StateWaits = field(default_factory=lambda: StateWaits(rows=WaitHistogram()))

    @cached_property
    def lookahead(self) -> Lookahead:
        return Lookahead(self.layout, self.share)

    def use(self, threads: Executor | None, store: Stored) -> None:
        """Begins with these threads; None ends it."""
        if self.work.meets == "settled":
            return  # its rows are matched when the watermark passes them, long after they came
        fetch = partial(SectionFetch, partial(self._distant, store.is_resident))
        self.lookahead.use(threads, lambda: list(store.segments), fetch)

    # ── hints ────────────────────────────────────────────────────────────────────────────────

    def expect(self, rows: pa.RecordBatch, store: Stored) -> None:
        """Reads the stored rows ahead that rows with these hashes may match."""
        if not self.lookahead.is_on or SIDE not in rows.schema.names:
            return
        sides = rows.column(SIDE).to_numpy(zero_copy_only=False)
        for side in (LEFT,) if self.work.meets == "arrival" else (LEFT, RIGHT):
            mine = np.flatnonzero(sides == side)  # rows with a null key match nothing
            if len(mine):
                self._hint(side, rows.take(pa.array(mine)), store)

    def _hint(self, side: int, rows: pa.RecordBatch, store: Stored) -> None:
        hashes, other = distinct(hashes_in(rows)), OTHER[side]
        time_us = int(times_of(rows).max()) if TIME in rows.schema.names else 0
        hints = Hints(hashes[:1], np.array([time_us]), np.zeros(1, np.int64))
        is_distant = any(self._distant(store.is_resident, store.segments, hints, other))
        self.lookahead.hint(other, hashes, np.full(len(hashes), not is_distant), time_us)

    def _distant(
        self, is_resident: Callable[[Place], bool], segments: Sequence[Segment], hints: Hints, side: int
    ) -> list[Place]:
        """The sections of a side that partners of hinted rows can be in, and that memory lacks."""
        first, last = self._partner_times(OTHER[side], hints)
        if self.work.generation is not None:
            first = last = newest(self.work, (one for segment in segments for one in segment.sections))
        return [
            (segment, section)
            for segment in segments
            for section in overlapping(self.work, segment.sections, side, first, last)
            if not is_resident((segment, section))
        ]

    def _partner_times(self, side: int, hints: Hints) -> tuple[int | None, int | None]:
        bounds = self.work.partner_us(side)
        if bounds is None or not hints.times.any():
            return None, None
        first, last = int(hints.times.min()), int(hints.times.max())
        if self.work.until is not None:
            return (first, None) if side == LEFT else (None, None)
        return first + bounds[0], last + bounds[1]

    # ── reads ────────────────────────────────────────────────────────────────────────────────

    def reading(self, places: list[Place], hashes: U64) -> Iterator[Run]:
        """The rows of ordered hashes in sections of one side."""
        with self.waits.waiting():
            known = self.lookahead.staged(side_of(self.work, places[0][1]), hashes)
        fetches = [fetch for fetch in known if isinstance(fetch, SectionFetch)]
        demanded: list[tuple[Place, U64]] = []
        missed: Flags = np.zeros(len(hashes), np.bool_)
        for place in places:
            left = hashes
            for fetch in fetches:
                run, left = fetch.staged(self.layout, place, left)
                if run is not None:
                    yield run
            if len(left):
                demanded.append((place, left))
                missed[np.searchsorted(hashes, left)] = True
        self.waits.keys += len(hashes)
        self.waits.hits += len(hashes) - int(missed.sum())
        if demanded:
            yield from self._waiting(read_ahead(self._demanded(demanded, hashes)))

    def _demanded(self, demanded: list[tuple[Place, U64]], hashes: U64) -> Iterator[Run]:
        prepare([place for place, _ in demanded], hashes)
        for (segment, section), left in demanded:
            run = segment.rows_of(section, left)
            self.waits.blocks += 1
            self.waits.bytes += run.nbytes
            yield run

    def _waiting(self, items: Iterator[T]) -> Iterator[T]:
        end = object()
        while True:
            with self.waits.waiting():
                item = next(items, end)
            if item is end:
                return
            yield item  # type: ignore[misc]

    def counted(self, rows: int, partners: Iterable[Run]) -> Iterator[Run]:
        """The partners of some rows; how long the rows wait for them counts as their wait."""
        before_ms = self.waits.wait_ms
        yield from partners
        assert self.waits.rows is not None
        self.waits.rows.add(rows, self.waits.wait_ms - before_ms)
