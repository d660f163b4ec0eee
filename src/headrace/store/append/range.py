"""The Range store: rows in time buckets, ordered by event time, read by time range.

A bucket is one slide of the windows, however their width and slide divide, so a window is a range scan over
a few buckets. Groups are put together in memory: in one pass over the range, or in several, each taking the
hashes of one remainder, where the range holds more rows than memory should.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import Flags
from headrace.row.run import Run
from headrace.store.append.aar import changed
from headrace.store.append.kept_store import KeptStore, Reading
from headrace.store.append.merge import by_range, concatenated
from headrace.store.append.read_ahead import read_ahead
from headrace.store.base.files import Files
from headrace.store.base.share import Share
from headrace.store.rows.groups import Computations, is_one_group
from headrace.store.rows.kept_layout import KeptLayout, by_time, ordered, subset, time_bound, with_hashes
from headrace.store.segments.merge import Source, ranged
from headrace.store.segments.reader import Segment


class ByTime:
    """Buckets ordered by event time; an `Order`."""

    def __init__(self, spec: OperatorSpec) -> None:
        assert spec.window is not None
        self.layout = KeptLayout(spec, hashed=True)
        self.bucket_us = spec.window.every_us

    def arranged(self, run: Run) -> Run:
        return ordered(by_time(self.layout, run))

    def chunks(self, reading: Reading) -> Iterator[tuple[Run, Flags | None]]:
        if is_one_group(self.layout.spec) and not reading.changed_only:
            scanned = self._scanned(reading, reading.sources)
            for run in read_ahead(scanned) if reading.from_disk else scanned:
                yield run, None
            return
        passes = -(-self._rows_in(reading) // reading.pass_rows)
        for number in range(passes):
            new = self._pass(reading, reading.new, number, passes)
            if reading.changed_only:
                if len(new):
                    yield changed(self.layout, [self._pass(reading, reading.old, number, passes)], [new])
                continue
            run = concatenated([self._pass(reading, reading.old, number, passes), new], self.layout)
            if len(run):
                yield ordered(run), None

    def _rows_in(self, reading: Reading) -> int:
        """About how many rows lie in the range."""
        parts, _ = ranged(reading.sources, np.array(self.layout.variable_words, np.int64))
        low, high = time_bound(reading.start_us), time_bound(reading.end_us)
        return max(1, sum(source.count(low, high) for source in parts))

    def _pass(self, reading: Reading, sources: list[Source], number: int, passes: int) -> Run:
        """The rows of the range whose hashes leave the remainder `number`; not ordered."""
        scanned = self._scanned(reading, sources)
        parts: list[Run] = []
        for run in read_ahead(scanned) if reading.from_disk else scanned:
            if passes == 1:
                parts.append(run)
                continue
            mine = run.order % np.uint64(passes) == np.uint64(number)
            parts.append(subset(self.layout, run, mine))
        return concatenated(parts, self.layout)

    def _scanned(self, reading: Reading, sources: list[Source]) -> Iterator[Run]:
        low, high = time_bound(reading.start_us), time_bound(reading.end_us)
        for source in sources:
            for run in by_range([source], self.layout, reading.chunk_rows, low, high):
                yield with_hashes(self.layout, run)


def open_range(
    spec: OperatorSpec,
    share: Share,
    files: Files,
    segments: list[Segment],
    watermark_us: int | None,
    computations: Computations,
) -> KeptStore:
    """The store over the segments of one version."""
    place = (spec, share, files, segments, watermark_us)
    return KeptStore(*place, order=ByTime(spec), computation=computations)
