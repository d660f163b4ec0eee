"""Rows that stand for parts of a group, in slices or in segments: its result is all of them, combined.

Memory: the hash space is cut so that one range of all slices comes to about `rows_max` rows; a range is
combined in a table of its own, one part after another, handed out, and forgotten.
Threads: the store's own, while no table changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.store.layout import RowLayout
from headrace.store.merge import Source, cut_ranges, merge, merge_runs, span_of
from headrace.store.run import Run
from headrace.store.segment import Segment, lookup_all
from headrace.store.table import Ids, Table

RANGE_PART = 8  # a range takes about this part of the store's share
ROWS_MIN = 1 << 16
DENSITY_MAX = 16  # a range has at most so many times the rows that it may come to
HASHES = 1 << 64


@dataclass(frozen=True)
class Pane:
    """One slice that has any row: its table, and the segments that know more, newest first."""

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

    def read(self, low: int, high: int) -> Run:
        """The newest row of each of its keys in the range."""
        if len(self.segments) == 1 and not len(self.table):
            return self.segments[0].scan_range(self.slice_us, low, high)
        held = self.table.between(low, high, ordered=bool(self.segments))
        if not self.segments:
            return held
        stored = [segment.scan_range(self.slice_us, low, high) for segment in self.segments]
        return merge_runs([held, *stored], self.table.layout)

    def look_up(self, keys: Run) -> list[tuple[Ids, Run]]:
        """Which of the ordered keys the slice has, and their rows; from memory, then from segments."""
        at = self.table.find(keys)
        known = np.flatnonzero(at >= 0)
        answers = [(known, self.table.rows_of(at[known]))] if len(known) else []
        missing = np.flatnonzero(at < 0)
        if not self.segments or not len(missing):
            return answers
        probe = Run(keys.hashes[missing], keys.words[missing], keys.heap)
        found = lookup_all(self.segments, self.slice_us, probe)
        hit = np.flatnonzero(found.mask)
        if len(hit):
            answers.append((missing[hit], Run(probe.hashes[hit], found.words[hit], found.heap)))
        return answers


def rows_max(panes: Sequence[Pane], share_bytes: int) -> int:
    """How many rows a range may hold in a store that has this share of the host's memory."""
    rows = max(1, sum(pane.rows for pane in panes))
    row_bytes = max(1, sum(pane.nbytes for pane in panes) // rows)
    return max(ROWS_MIN, share_bytes // RANGE_PART // row_bytes)


def combined(panes: Sequence[Pane], layout: RowLayout, limit: int) -> Iterator[Run]:
    """The rows of all slices together, one per key; each run is valid until the next."""
    if len(panes) == 1:
        yield from _alone(panes[0], limit)
        return
    for together in _tables(panes, layout, limit):
        yield together.view()


def summed(layout: RowLayout, newest_first: Sequence[Source], limit: int) -> Iterator[Run]:
    """The rows of all sources together, one per key, as ordered runs; the oldest source comes first."""
    nothing = Table(layout)
    panes = [
        Pane(source[1], nothing, (source[0],))
        for source in reversed(newest_first)
        if not isinstance(source, Run)
    ]
    for together in _tables(panes, layout, limit):
        yield together.whole_run()


def _alone(pane: Pane, limit: int) -> Iterator[Run]:
    """The rows of one pane: no key has two."""
    whole = pane.rows <= limit or not pane.segments
    for low, high in [(0, HASHES)] if whole else cut_ranges([pane], *pane.span(), limit):
        run = pane.read(low, high)
        if len(run):
            yield run


def _tables(panes: Sequence[Pane], layout: RowLayout, limit: int) -> Iterator[Table]:
    """One table after another for ascending ranges of hashes, none of them empty.

    How many rows of a range were of the same keys says how many the next one may have.
    """
    rows_left, room = sum(pane.rows for pane in panes), limit
    low, end = (0, HASHES) if rows_left <= room else span_of(panes)
    while rows_left and low < end:
        high = _cut(panes, low, end, rows_left, room)
        together, rows = _together(panes, layout, low, high, min(limit, rows_left))
        rows_left = max(0, rows_left - rows)
        if len(together):
            room = limit * max(1, min(DENSITY_MAX, rows // len(together)))
            yield together
        low = high


def _cut(panes: Sequence[Pane], low: int, end: int, rows_left: int, room: int) -> int:
    """Where a range from `low` on ends that has about `room` rows; hashes are mostly uniform."""
    if rows_left <= room:
        return end

    def rows(high: int) -> int:
        return sum(pane.count(low, high) for pane in panes)

    high = low + max(1, (end - low) * room // rows_left)
    held = rows(high)
    while high < end and not held:
        high = min(end, low + 4 * (high - low))
        held = rows(high)
    while high - low > 1 and held > 2 * room:
        high = low + (high - low) // 2
        held = rows(high)
    return high


def _together(
    panes: Sequence[Pane], layout: RowLayout, low: int, high: int, expected: int
) -> tuple[Table, int]:
    """What the range comes to, and how many rows it was made of."""
    rows, together = 0, Table(layout, expected)
    for pane in panes:
        run = pane.read(low, high)
        together.absorb(run)
        rows += len(run)
    return together, rows


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
