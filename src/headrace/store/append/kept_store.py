"""A store of kept rows: appended, read when their window closes, deleted bucket by bucket.

    rows ─▶ buckets in memory ─▶ (flush) ─▶ files per bucket and epoch ─▶ (window closes) ─▶ groups

Invariants: a row is stored once however many windows cover it. A bucket is dead as a whole, once the last
window over it takes no more rows. `bucket_store` has the others.
Threads: as `store.base.contract` describes; a reader thread of `results` reads segments one chunk ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.plan.spec import Window
from headrace.row.arrays import Flags
from headrace.row.chunks import READ_ROWS
from headrace.row.run import Run
from headrace.store.append.bucket_store import BucketStore
from headrace.store.append.buckets import Due, bucket_of, closed_for_good_us, due_windows
from headrace.store.base.room import READ_CHUNK, READ_PASS
from headrace.store.rows.groups import Computation, Computations, groups_of
from headrace.store.rows.kept_layout import KeptLayout, pieces_of, subset, times_in
from headrace.store.rows.slices import is_closed
from headrace.store.segments.merge import Source

CHUNK_BYTES = 8 << 20
CHUNK_BYTES_MIN = 2 << 20  # smaller ones take longer to cut than to read


@dataclass(frozen=True)
class Reading:
    """What is to be read of one window; sources of rows from before this epoch, and of this epoch."""

    start_us: int
    end_us: int
    old: list[Source]
    new: list[Source]
    chunk_rows: int  # to read at once
    pass_rows: int  # to have in memory
    changed_only: bool

    @property
    def sources(self) -> list[Source]:
        return [*self.old, *self.new]

    @property
    def from_disk(self) -> bool:
        return any(not isinstance(source, Run) for source in self.sources)


class Order(Protocol):
    """How rows are ordered in buckets and files, and how a window's groups are read from them."""

    layout: KeptLayout
    bucket_us: int

    def arranged(self, run: Run) -> Run:
        """The rows ordered by the order key; `hashes` of the run given are hashes."""

    def chunks(self, reading: Reading) -> Iterator[tuple[Run, Flags | None]]:
        """Whole groups in bounded chunks, ordered by hash; which rows are new, if only changes count."""


@dataclass(kw_only=True)
class KeptStore(BucketStore):
    """State of one partition."""

    order: Order
    computation: Computations  # a fresh one per epoch

    @property
    def _window(self) -> Window:
        assert self.spec.window is not None, "rows are kept until their window closes"
        return self.spec.window

    def is_dead(self, bucket: int, watermark_us: int | None) -> bool:
        return is_closed(bucket, self._window, watermark_us)

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        run, layout = pieces_of(self.order.layout, rows), self.order.layout
        buckets = bucket_of(times_in(layout, run), self._window, self.order.bucket_us)
        if self.watermark_us is not None and len(run):
            timely = closed_for_good_us(buckets, self._window) > self.watermark_us
            if not timely.all():
                self.late_rows += len(run) - int(np.count_nonzero(timely))
                run, buckets = subset(layout, run, timely), buckets[timely]
        self.add_rows(run, buckets)

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        touched = set(self._fresh).union(*(segment.sections for segment in self.spilled))
        buckets = self._stored_buckets() | touched
        compute = self.computation(self.order.layout)
        for due in due_windows(buckets, touched, self._window, self.watermark_us, watermark_us):
            yield from self._window_results(due, compute)

    def _window_results(self, due: Due, compute: Computation) -> Iterator[pa.RecordBatch]:
        reading = self._reading(due)
        for run, fresh in self.order.chunks(reading):
            layout = self.order.layout
            yield from compute(*groups_of(layout, run, reading.start_us, reading.end_us, fresh))
        for source in reading.sources:
            if not isinstance(source, Run):
                source[0].release(source[1])

    def _reading(self, due: Due) -> Reading:
        end_us = due.start_us + self._window.width_us
        old: list[Source] = []
        new: list[Source] = []
        for bucket in range(due.start_us, end_us, self.order.bucket_us):
            old += [
                self._source(segment, bucket) for segment in self.segments if bucket in segment.sections
            ]
            new += [(segment, bucket) for segment in self.spilled if bucket in segment.sections]
            if bucket in self._fresh:
                new.append(self._arranged(bucket))
        each = _row_bytes([*old, *new])
        chunk_bytes = min(CHUNK_BYTES, max(CHUNK_BYTES_MIN, READ_CHUNK.of(self.share)))
        chunk_rows = max(1, min(READ_ROWS, chunk_bytes // each))
        pass_rows = max(chunk_rows, READ_PASS.of(self.share) // each)
        return Reading(due.start_us, end_us, old, new, chunk_rows, pass_rows, due.changed_only)


def _row_bytes(sources: list[Source]) -> int:
    """About how many bytes a row of the sources takes."""
    rows = size = 0
    for source in sources:
        if isinstance(source, Run):
            rows, size = rows + len(source), size + source.nbytes
        else:
            entry = source[0].sections[source[1]]
            rows, size = rows + entry.rows, size + entry.index - entry.start
    return max(1, size // max(1, rows))
