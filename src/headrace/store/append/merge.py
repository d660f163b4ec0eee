"""Merges ordered sources in which every row counts: bounded ranges of the order key, duplicates kept.

The counterpart of `store.merge` for kinds of segments that append. The space of order keys is cut into
ranges of about `chunk_rows` rows over all sources. All rows of one order key lie in one range, so with
hashes as order keys no key is in two chunks. A chunk is larger only where a single order key has more rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.errors import TryAgain
from headrace.kernels.segments.merge import shift_heap, take_rows
from headrace.row.arrays import I64
from headrace.row.chunks import REWRITE_ROWS
from headrace.row.layout import LENGTH_MAX
from headrace.row.run import Run
from headrace.store.rows.kept_layout import ordered
from headrace.store.segments.merge import Ranged, Shape, Source, concatenate, cut_ranges, ranged, span_of
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import SegmentMeta, write_segment


@dataclass(frozen=True)
class PackedRun(Run):
    """An ordered run whose heap lies in the order of its rows, so that a range of it is one piece."""

    heap_ends: I64  # where the bytes of each row end
    variable: I64


def packed(run: Run, shape: Shape) -> Run:
    """The ordered run, packed if its rows have a heap; ranges of it are then read without copying bytes."""
    if not shape.variable_words:
        return run
    variable = np.array(shape.variable_words, np.int64)
    words, heap = take_rows(run.words, run.heap, 0, len(run), variable)
    lengths = (words[:, variable] & np.uint64(LENGTH_MAX)).sum(axis=1, dtype=np.int64)
    return PackedRun(run.order, words, heap, np.cumsum(lengths), variable)


@dataclass(frozen=True)
class _Packed:
    """A packed run as a source of ranges."""

    run: PackedRun

    def span(self) -> tuple[int, int]:
        return int(self.run.order[0]), int(self.run.order[-1]) + 1

    def _bounds(self, low: int, high: int) -> tuple[int, int]:
        start = int(np.searchsorted(self.run.order, np.uint64(low), "left"))
        return start, int(np.searchsorted(self.run.order, np.uint64(high - 1), "right"))

    def count(self, low: int, high: int) -> int:
        start, end = self._bounds(low, high)
        return end - start

    def read(self, low: int, high: int) -> Run:
        run, (start, end) = self.run, self._bounds(low, high)
        first = int(run.heap_ends[start - 1]) if start else 0
        last = int(run.heap_ends[end - 1]) if end > start else first
        words = run.words[start:end].copy()
        shift_heap(words, 0, len(words), run.variable, -first)
        return Run(run.order[start:end], words, run.heap[first:last])


def by_range(
    sources: Sequence[Source], shape: Shape, chunk_rows: int, low: int = 0, high: int = 1 << 64
) -> Iterator[Run]:
    """The rows of all sources with order keys in `[low, high)`, as ordered runs of about `chunk_rows`."""
    for runs in range_parts(sources, shape, chunk_rows, low, high):
        several = sum(1 for part in runs if len(part)) > 1
        run = concatenated(runs, shape)
        runs.clear()
        if len(run):
            yield ordered(run) if several else run


def range_parts(
    sources: Sequence[Source], shape: Shape, chunk_rows: int, low: int = 0, high: int = 1 << 64
) -> Iterator[list[Run]]:
    """Range after range, what each source has of it: one run per source, some of them empty.

    A run's heap may hold more bytes than its rows use.
    """
    parts, places = _ranged(sources, np.array(shape.variable_words, np.int64))
    if not parts:
        return
    start, end = span_of(parts)
    start, end = max(start, low), min(end, high)
    if start >= end:
        return
    for first, last in cut_ranges(parts, start, end, max(chunk_rows, 1)):
        runs = [no_rows(shape)] * len(sources)
        for place, source in zip(places, parts, strict=True):
            runs[place] = source.read(first, last)
        yield runs


def _ranged(sources: Sequence[Source], variable: I64) -> tuple[list[Ranged], list[int]]:
    parts, places = ranged(sources, variable)
    for index, place in enumerate(places):
        source = sources[place]
        if isinstance(source, PackedRun):
            parts[index] = _Packed(source)
    return parts, places


def concatenated(runs: Sequence[Run], shape: Shape) -> Run:
    """All rows of the runs over one heap, run after run."""
    filled = [run for run in runs if len(run)]
    if not filled:
        return no_rows(shape)
    if len(filled) == 1:
        return filled[0]
    return concatenate(filled, np.array(shape.variable_words, np.int64))[0]


def no_rows(shape: Shape) -> Run:
    return Run(np.empty(0, np.uint64), np.empty((0, shape.width), np.uint64), np.empty(0, np.uint8))


def compact_kept(
    segments: Sequence[Segment],
    path: str | Path,
    shape: Shape,
    live: Callable[[int], bool],
    stop: threading.Event | None = None,
    *,
    chunk_rows: int = REWRITE_ROWS,
) -> SegmentMeta | None:
    """Put the live sections of segments into one at `path`, every row of them.

    None, and no file, when nothing in them is live. Raises `TryAgain`, and leaves no file, once `stop` is
    set.
    """
    numbers = sorted({number for segment in segments for number in segment.sections if live(number)})
    if not numbers:
        return None

    def runs(number: int) -> Iterator[Run]:
        sources = [(segment, number) for segment in segments if number in segment.sections]
        for run in by_range(sources, shape, chunk_rows):
            if stop is not None and stop.is_set():
                raise TryAgain("the compaction was stopped", hint="it starts again after the next commit")
            yield run

    return write_segment(
        path, shape.width, ((number, runs(number)) for number in numbers), shape.variable_words
    )
