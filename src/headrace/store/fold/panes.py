"""Rows that stand for parts of a group, in slices or in segments: its result is all of them, combined.

Memory: the hash space is cut so that one range of all slices comes to about `rows_max` rows; a range is
combined, handed out, and forgotten. Few parts that are ordered are combined at once (`store.aligned`),
others one after another in a table.
Threads: the store's own, while no table changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.row.arrays import Ids
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.base.room import COMBINE_RANGE
from headrace.store.base.share import Share
from headrace.store.segments.merge import Source, cut_ranges, merge, merge_runs, span_of
from headrace.store.segments.reader import Segment, lookup_all
from headrace.store.tables.aligned import RUNS_MAX, aligned
from headrace.store.tables.table import Table

ROWS_MIN = 1 << 16
DENSITY_MAX = 16  # a range has at most so many times the rows that it may come to
DENSITY_MAX_ALIGNED = 2  # the same, where all of them are in memory at once
ORDERED_PART = 4  # rows in no order are ordered first where they are at most this part of all
HASHES = 1 << 64


@dataclass(frozen=True)
class Pane:
    """One slice that has any row: its table, and the segments with further rows, newest first."""

    slice_us: int
    table: Table
    segments: tuple[Segment, ...]  # none where the table has every key of the slice

    @property
    def rows(self) -> int:
        """At most so many; a key may be in several segments."""
        return len(self.table) + sum(segment.sections[self.slice_us].rows for segment in self.segments)

    @property
    def nbytes(self) -> int:
        """About what all its rows take in memory."""
        stored = (s.size * s.sections[self.slice_us].rows // s.rows for s in self.segments)
        return self.table.nbytes + sum(stored)

    def span(self) -> tuple[int, int]:
        entries = [segment.sections[self.slice_us] for segment in self.segments]
        hashes = self.table.hashes
        lows, highs = [entry.min_hash for entry in entries], [entry.max_hash for entry in entries]
        if len(hashes):
            lows, highs = [*lows, int(hashes.min())], [*highs, int(hashes.max())]
        return min(lows), max(highs) + 1

    def count(self, low: int, high: int) -> int:
        stored = sum(segment.count_range(self.slice_us, low, high) for segment in self.segments)
        return self.table.count_between(low, high) + stored

    def read(self, low: int, high: int, *, ordered: bool = False) -> Run:
        """The newest row of each of its keys in the range; what is in segments is always ordered."""
        if len(self.segments) == 1 and not len(self.table):
            return self.segments[0].scan_range(self.slice_us, low, high)
        in_memory = self.table.between(low, high, ordered=ordered or bool(self.segments))
        if not self.segments:
            return in_memory
        stored = [segment.scan_range(self.slice_us, low, high) for segment in self.segments]
        return merge_runs([in_memory, *stored], self.table.layout)

    def look_up(self, keys: Run) -> list[tuple[Ids, Run]]:
        """Which of the ordered keys the slice has, and their rows; from memory, then from segments."""
        at = self.table.find(keys)
        known = np.flatnonzero(at >= 0)
        answers = [(known, self.table.rows_of(at[known]))] if len(known) else []
        missing = np.flatnonzero(at < 0)
        if not self.segments or not len(missing):
            return answers
        probe = Run(keys.order[missing], keys.words[missing], keys.heap)
        answer = lookup_all(self.segments, self.slice_us, probe)
        hit = np.flatnonzero(answer.mask)
        if len(hit):
            answers.append((missing[hit], Run(probe.order[hit], answer.words[hit], answer.heap)))
        return answers


def rows_max(panes: Sequence[Pane], share: Share) -> int:
    """How many rows a range may hold in a store that has this share of the host's memory."""
    rows = max(1, sum(pane.rows for pane in panes))
    row_bytes = max(1, sum(pane.nbytes for pane in panes) // rows)
    return max(ROWS_MIN, COMBINE_RANGE.of(share) // row_bytes)


def combined(panes: Sequence[Pane], layout: RowLayout, limit: int) -> Iterator[Run]:
    """The rows of all slices together, one per key; each run is valid until the next."""
    if len(panes) == 1:
        yield from _alone(panes[0], limit)
        return
    yield from _ranges(panes, layout, limit, ordered=False)


def summed(layout: RowLayout, newest_first: Sequence[Source], limit: int) -> Iterator[Run]:
    """The rows of all sources together, one per key, as ordered runs; the oldest source comes first."""
    nothing = Table(layout)
    panes = [
        Pane(source[1], nothing, (source[0],))
        for source in reversed(newest_first)
        if not isinstance(source, Run)
    ]
    yield from _ranges(panes, layout, limit, ordered=True)


def _alone(pane: Pane, limit: int) -> Iterator[Run]:
    """The rows of one pane: no key has two."""
    whole = pane.rows <= limit or not pane.segments
    for low, high in [(0, HASHES)] if whole else cut_ranges([pane], *pane.span(), limit):
        run = pane.read(low, high)
        if len(run):
            yield run


def _ranges(panes: Sequence[Pane], layout: RowLayout, limit: int, *, ordered: bool) -> Iterator[Run]:
    """One run after another for ascending ranges of hashes, none of them empty.

    The number of rows of a range with equal keys bounds the rows of the next range.
    """
    at_once = _is_aligned(panes)
    density_max = DENSITY_MAX_ALIGNED if at_once else DENSITY_MAX
    rows_left, room = sum(pane.rows for pane in panes), limit
    low, end = (0, HASHES) if rows_left <= room else span_of(panes)
    while rows_left and low < end:
        high = _cut(panes, low, end, rows_left, room)
        parts = (pane.read(low, high, ordered=at_once) for pane in panes)
        expected = min(limit, rows_left)
        together, rows = (_at_once if at_once else _in_turn)(parts, layout, expected, ordered)
        rows_left = max(0, rows_left - rows)
        if len(together):
            room = limit * max(1, min(density_max, rows // len(together)))
            yield together
        low = high


def _is_aligned(panes: Sequence[Pane]) -> bool:
    """Whether the panes are few, and nearly all of their rows ordered."""
    unordered = sum(len(pane.table) for pane in panes if not pane.segments)
    return len(panes) <= RUNS_MAX and unordered * ORDERED_PART <= sum(pane.rows for pane in panes)


def _cut(panes: Sequence[Pane], low: int, end: int, rows_left: int, room: int) -> int:
    """Where a range from `low` on ends that has about `room` rows; hashes are mostly uniform."""
    if rows_left <= room:
        return end

    def rows(high: int) -> int:
        return sum(pane.count(low, high) for pane in panes)

    high = low + max(1, (end - low) * room // rows_left)
    count = rows(high)
    while high < end and not count:
        high = min(end, low + 4 * (high - low))
        count = rows(high)
    while high - low > 1 and count > 2 * room:
        high = low + (high - low) // 2
        count = rows(high)
    return high


def _at_once(parts: Iterable[Run], layout: RowLayout, expected: int, ordered: bool) -> tuple[Run, int]:
    """What ordered parts come to, and how many rows they were."""
    runs = list(parts)
    together = aligned(runs, layout)
    if together is None:
        return _in_turn(runs, layout, expected, ordered)
    return together, sum(map(len, runs))


def _in_turn(parts: Iterable[Run], layout: RowLayout, expected: int, ordered: bool) -> tuple[Run, int]:
    """The same, of parts in any order."""
    rows, together = 0, Table(layout, expected)
    for run in parts:
        together.absorb(run)
        rows += len(run)
    return together.whole_run() if ordered else together.view(), rows


def combined_of(
    panes: Sequence[Pane], changed: Sequence[Source], layout: RowLayout, limit: int
) -> Iterator[Run]:
    """The same for the keys of `changed` only."""
    for keys in merge(changed, layout, limit):
        together = Table(layout, len(keys))
        ids, _ = together.upsert(keys)
        probe = together.keys_of(ids)
        for pane in panes:
            for at, rows in pane.look_up(probe):
                together.combine(ids[at], rows)
        yield together.view()
