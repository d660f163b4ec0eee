"""Rows of the log that are in memory too, as few ordered runs, so that little is read when sessions end.

Invariant: of each segment that is held, every row is in one group; rows of other segments are in none.
Threads: the partition's own; a compaction may go on with runs that were evicted meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from headrace.kernels.core.order import by_hash
from headrace.kernels.sessions.rows import places
from headrace.row.arrays import U8, U64
from headrace.row.run import Run
from headrace.store.append.merge import concatenated
from headrace.store.rows.kept_layout import KeptLayout, subset, times_in
from headrace.store.rows.take import rows_at
from headrace.store.segments.reader import Segment

TOGETHER = 8  # small segments become one group
SMALL_ROWS = 1 << 13


def last_time(segment: Segment) -> int:
    """The latest time of the segment's rows."""
    return segment.last


def pick(run: Run, hashes: U64) -> Run:
    """The rows of ordered, distinct hashes in an ordered run, over the same heap."""
    return rows_at(run, places(run.order, hashes))


@dataclass(frozen=True)
class Group:
    """The rows of some segments, ordered by hash, and which of the segments each row is of."""

    segments: tuple[Segment, ...]
    run: Run
    of_row: U8
    first_us: int
    last_us: int

    @property
    def nbytes(self) -> int:
        return self.run.nbytes + self.of_row.nbytes

    @property
    def is_small(self) -> bool:
        return len(self.segments) == 1 and len(self.run) <= SMALL_ROWS

    def only(self, layout: KeptLayout, segments: AbstractSet[Segment]) -> Group:
        """What it has of these segments."""
        kept = np.array([segment in segments for segment in self.segments])
        if kept.all():
            return self
        rows = np.flatnonzero(kept[self.of_row])
        numbers = (np.cumsum(kept) - 1).astype(np.uint8)
        remaining = tuple(segment for segment in self.segments if segment in segments)
        of_row = numbers[self.of_row[rows]]
        return Group(remaining, subset(layout, self.run, rows), of_row, self.first_us, self.last_us)


def together(layout: KeptLayout, groups: Sequence[Group]) -> Group:
    """One group of several, each of one segment."""
    run = concatenated([group.run for group in groups], layout)
    order = by_hash(run.order)
    numbers = np.repeat(np.arange(len(groups), dtype=np.uint8), [len(group.run) for group in groups])
    return Group(
        tuple(group.segments[0] for group in groups),
        rows_at(run, order),
        numbers[order],
        min(group.first_us for group in groups),
        max(group.last_us for group in groups),
    )


def runs_of(layout: KeptLayout, groups: Sequence[Group], segments: AbstractSet[Segment]) -> list[Run]:
    """The rows that groups have of these segments."""
    chosen = [group for group in groups if not segments.isdisjoint(group.segments)]
    return [group.only(layout, segments).run for group in chosen]


@dataclass
class HeldRows:
    """Groups by age, the oldest first; the list is never changed, but replaced."""

    layout: KeptLayout
    groups: list[Group] = field(default_factory=list)
    nbytes: int = 0
    _segments: set[Segment] = field(default_factory=set)

    def __len__(self) -> int:
        """How many segments it holds."""
        return len(self._segments)

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._segments

    def hold(self, segment: Segment, run: Run) -> None:
        """Take the rows of a segment, ordered by hash; a clipped segment may have none."""
        first_us = int(times_in(self.layout, run).min()) if len(run) else last_time(segment)
        of_row = np.zeros(len(run), np.uint8)
        group = Group((segment,), run, of_row, first_us, last_time(segment))
        self._set(sorted([*self.groups, group], key=lambda group: group.last_us))
        recent = self.groups[-TOGETHER:]
        if len(recent) == TOGETHER and all(group.is_small for group in recent):
            self._set([*self.groups[:-TOGETHER], together(self.layout, recent)])

    def keep(self, segments: AbstractSet[Segment]) -> None:
        """Evicts the rows of all other segments."""
        if not self._segments <= segments:
            left = [group for group in self.groups if not segments.isdisjoint(group.segments)]
            self._set([group.only(self.layout, segments) for group in left])

    def evict_to(self, bytes_max: int) -> None:
        """Evicts the newest rows, which are read last, until the rest fits."""
        kept, total = 0, 0
        for group in self.groups:
            total += group.nbytes
            kept += total <= bytes_max
        self._set(self.groups[:kept])

    def pick(self, hashes: U64, first_us: int | None = None, last_us: int | None = None) -> Iterator[Run]:
        """What groups with rows of those times have of ordered, distinct hashes."""
        for group in self.groups:
            late_enough = first_us is None or group.last_us >= first_us
            if late_enough and (last_us is None or group.first_us <= last_us):
                yield pick(group.run, hashes)

    def _set(self, groups: list[Group]) -> None:
        self.groups = groups
        self.nbytes = sum(group.nbytes for group in self.groups)
        self._segments = {segment for group in self.groups for segment in group.segments}
