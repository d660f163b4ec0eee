"""Merges ordered sources of one slice, newest first: ordered, distinct, newest wins, bounded memory.

The hash space is cut into ranges that hold about `chunk_rows` rows over all sources, so a merge holds one
range in memory whatever the sources' sizes. No key lies in two ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headrace.kernels.segments.merge import merge_order, shift_heap, take_rows
from headrace.row.arrays import I64, Flags
from headrace.row.run import Run
from headrace.store.rows.take import rows_at
from headrace.store.segments.reader import Segment

Source = Run | tuple[Segment, int]  # an ordered run in memory, or one slice of a segment


class Shape(Protocol):
    """What a merge needs of a row; `RowLayout` has it."""

    @property
    def width(self) -> int: ...
    @property
    def key_width(self) -> int: ...
    @property
    def variable_words(self) -> tuple[int, ...]: ...
    @property
    def variable_key_words(self) -> tuple[int, ...]: ...


class Ranged(Protocol):
    """A source that can be read by hash range."""

    def span(self) -> tuple[int, int]: ...
    def count(self, low: int, high: int) -> int: ...
    def read(self, low: int, high: int) -> Run: ...


@dataclass(frozen=True)
class _Memory:
    run: Run
    variable: I64

    def span(self) -> tuple[int, int]:
        return int(self.run.order[0]), int(self.run.order[-1]) + 1

    def _bounds(self, low: int, high: int) -> tuple[int, int]:
        hashes = self.run.order
        if low <= int(hashes[0]) and int(hashes[-1]) < high:
            return 0, len(hashes)
        start = np.searchsorted(hashes, np.uint64(low), "left")
        return int(start), int(np.searchsorted(hashes, np.uint64(high - 1), "right"))

    def count(self, low: int, high: int) -> int:
        start, end = self._bounds(low, high)
        return end - start

    def read(self, low: int, high: int) -> Run:
        run, (start, end) = self.run, self._bounds(low, high)
        if not len(self.variable):
            return Run(run.order[start:end], run.words[start:end], run.heap)
        return Run(run.order[start:end], *take_rows(run.words, run.heap, start, end, self.variable))


@dataclass(frozen=True)
class _Stored:
    segment: Segment
    number: int

    def span(self) -> tuple[int, int]:
        entry = self.segment.sections[self.number]
        return entry.min_hash, entry.max_hash + 1

    def count(self, low: int, high: int) -> int:
        return self.segment.count_range(self.number, low, high)

    def read(self, low: int, high: int) -> Run:
        return self.segment.scan_range(self.number, low, high)


def merge(sources: Sequence[Source], shape: Shape, chunk_rows: int) -> Iterator[Run]:
    """The newest row of every key, as ordered runs of about `chunk_rows` rows; newest source first.

    A run's heap may hold more bytes than its rows use.
    """
    filled, _ = ranged(sources, np.array(shape.variable_words, np.int64))
    if not filled:
        return
    start, end = span_of(filled)
    for low, high in cut_ranges(filled, start, end, max(chunk_rows, 1)):
        run = merge_runs([source.read(low, high) for source in filled], shape)
        if len(run):
            yield run


def ranged(sources: Sequence[Source], variable: I64) -> tuple[list[Ranged], list[int]]:
    """The sources that hold any row, and their places among all of them."""
    filled: list[Ranged] = []
    places: list[int] = []
    for place, source in enumerate(sources):
        if isinstance(source, Run):
            if len(source):
                filled.append(_Memory(source, variable))
                places.append(place)
        elif source[1] in source[0].sections:
            filled.append(_Stored(*source))
            places.append(place)
    return filled, places


def span_of(sources: Sequence[Ranged]) -> tuple[int, int]:
    """The range `[low, high)` that the order keys of all sources lie in."""
    spans = [source.span() for source in sources]
    return min(low for low, _ in spans), max(high for _, high in spans)


def merge_runs(runs: Sequence[Run], shape: Shape) -> Run:
    """The newest row of every key of ordered runs, newest first, as one ordered run."""
    filled = [run for run in runs if len(run)]
    if not filled:
        return Run(np.empty(0, np.uint64), np.empty((0, shape.width), np.uint64), np.empty(0, np.uint8))
    if len(filled) == 1:
        return filled[0]
    together, bounds = concatenate(filled, np.array(shape.variable_words, np.int64))
    variable_key: Flags = np.zeros(shape.key_width, np.bool_)
    variable_key[list(shape.variable_key_words)] = True
    order = merge_order(together.order, together.words, together.heap, bounds, variable_key)
    return rows_at(together, order)


def concatenate(runs: Sequence[Run], variable: I64) -> tuple[Run, I64]:
    """The rows of all runs over one heap, and where each run begins and ends."""
    bounds: I64 = np.cumsum([0, *(len(run) for run in runs)], dtype=np.int64)
    words = np.concatenate([run.words for run in runs])
    if not len(variable):
        return Run(np.concatenate([run.order for run in runs]), words, np.empty(0, np.uint8)), bounds
    used = 0
    for index, run in enumerate(runs):
        shift_heap(words, bounds[index], bounds[index + 1], variable, used)
        used += len(run.heap)
    heap = np.concatenate([run.heap for run in runs])
    return Run(np.concatenate([run.order for run in runs]), words, heap), bounds


def cut_ranges(sources: Sequence[Ranged], low: int, high: int, limit: int) -> Iterator[tuple[int, int]]:
    """Hash ranges `[low, high)` in order, each of fewer than twice `limit` rows, or of a single hash."""
    rows = sum(source.count(low, high) for source in sources)
    parts = min(rows // limit, high - low)
    if parts <= 1:
        yield low, high
        return
    # Cut evenly, because hashes are uniform; a range that is still too full is cut again.
    for part in range(parts):
        start, end = low + (high - low) * part // parts, low + (high - low) * (part + 1) // parts
        yield from cut_ranges(sources, start, end, limit)
