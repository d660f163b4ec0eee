"""Rows that the watermark has not passed: appended in buckets of time, read once, when it passes them.

Invariant: a row is handed out in the epoch whose watermark passes it. A bucket is dead once the watermark
has passed all of its times.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.plan.spec import OperatorSpec
from headrace.row.chunks import READ_ROWS
from headrace.row.run import Run
from headrace.store.append.bucket_store import BucketStore
from headrace.store.append.merge import concatenated, no_rows
from headrace.store.base.files import Files
from headrace.store.base.share import Share
from headrace.store.rows.kept_layout import KeptLayout, ordered, pieces_of, subset, times_in
from headrace.store.segments.reader import Segment

BUCKETS = 4  # of a watermark's delay
BUCKET_MIN_US = 1_000_000


class ByHash:
    """Rows of a bucket by hash; an `Arrangement`."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.layout = KeptLayout(spec)

    def arranged(self, run: Run) -> Run:
        return ordered(run)


class WaitingRows(BucketStore):
    """Rows later than the watermark."""

    @property
    def _bucket_us(self) -> int:
        return max(BUCKET_MIN_US, min(self.spec.delays_ms, default=0) * 1000 // BUCKETS)

    def is_dead(self, bucket: int, watermark_us: int | None) -> bool:
        return watermark_us is not None and bucket + self._bucket_us - 1 <= watermark_us

    def apply(self, rows: pa.RecordBatch) -> None:
        """Adds rows; those that the watermark has passed are late."""
        layout = self.order.layout
        run = pieces_of(layout, rows)
        times = times_in(layout, run)
        if self.watermark_us is not None and len(run):
            timely = times > self.watermark_us
            self.late_rows += len(run) - int(np.count_nonzero(timely))
            run, times = subset(layout, run, timely), times[timely]
        self.add_rows(run, times - np.mod(times, self._bucket_us))

    def due(self, watermark_us: int | None) -> Run:
        """The rows that the watermark passes in this epoch, ordered by hash."""
        if watermark_us is None:
            return no_rows(self.order.layout)
        layout, parts = self.order.layout, list[Run]()
        for run in self._reached(watermark_us):
            times = times_in(layout, run)
            passed = times <= watermark_us
            if self.watermark_us is not None:
                passed &= times > self.watermark_us
            if passed.any():
                parts.append(subset(layout, run, passed))
        return ordered(concatenated(parts, layout))

    def _reached(self, watermark_us: int) -> Iterator[Run]:
        """Runs that have all rows between the last watermark and this one."""
        for bucket in sorted(at for at in self._fresh if at <= watermark_us):
            yield self._arranged(bucket)
        for segment in (*self.segments, *self.spilled):
            for bucket in sorted(segment.sections):
                if bucket > watermark_us or self.is_dead(bucket, self.watermark_us):
                    continue
                source = self._source(segment, bucket)
                if isinstance(source, Run):
                    yield source
                else:
                    yield from segment.scan(bucket, READ_ROWS)

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        raise TypeError("rows that wait have no results")


def waiting_rows(
    spec: OperatorSpec, share: Share, files: Files, segments: list[Segment], watermark_us: int | None
) -> WaitingRows:
    return WaitingRows(spec, share, files, segments, watermark_us, ByHash(spec))
