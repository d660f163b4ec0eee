"""Rows that the watermark has not passed: appended in buckets of time, read when it passes them.

A section's number is the start of its bucket, with the bucket's width in its lowest bits: the width is a
power of two. So files are read right, whatever delay the watermark has at the next start. Numbers of an
earlier release are starts alone: such a section may have rows of a long time behind it.

Invariant: a row is handed out in the epoch whose watermark passes it, and with a gap once more in the epoch
whose watermark passes the gap behind it. A bucket is dead once both are over for all of its times.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import I64, Flags
from headrace.row.chunks import READ_ROWS
from headrace.row.run import Run
from headrace.store.append.bucket_store import BucketStore
from headrace.store.append.merge import concatenated
from headrace.store.base.files import Files
from headrace.store.base.share import Share
from headrace.store.rows.kept_layout import KeptLayout, ordered, pieces_of, subset, times_in
from headrace.store.segments.reader import Segment

BUCKETS = 4  # of a watermark's delay
GAP_BUCKETS = 64  # of a gap
WIDTH_BITS_MIN = 20  # a second
WIDTH_BITS_UNNAMED = 36  # 19 hours: a quarter of the delay under which an earlier release wrote the section
_WIDTHS = 64  # a width is two to a number below


class ByHash:
    """Rows of a bucket by hash; an `Arrangement`."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.layout = KeptLayout(spec)

    def arranged(self, run: Run) -> Run:
        return ordered(run)


def width_bits(delays_ms: tuple[int, ...], gap_us: int) -> int:
    """The bucket's width as a power of two."""
    width_us = max(min(delays_ms, default=0) * 1000 // BUCKETS, gap_us // GAP_BUCKETS)
    return max(WIDTH_BITS_MIN, width_us.bit_length() - 1)


def sections_of(times_us: I64, bits: int) -> I64:
    """The section of each row."""
    sections: I64 = (times_us >> bits << bits) | bits
    return sections


def times_of(section: int) -> tuple[int, int]:
    """The first and the last time that rows of a section can have."""
    start, bits = section - section % _WIDTHS, section % _WIDTHS
    if bits < WIDTH_BITS_MIN or start % (1 << bits):
        start, bits = section, WIDTH_BITS_UNNAMED
    return start, start + (1 << bits) - 1


class WaitingRows(BucketStore):
    """Rows later than the watermark, or than the watermark less a gap."""

    @property
    def _gap_us(self) -> int:
        assert self.spec.window is not None
        return self.spec.window.width_us

    def is_dead(self, bucket: int, watermark_us: int | None) -> bool:
        return watermark_us is not None and times_of(bucket)[1] + self._gap_us <= watermark_us

    def apply(self, rows: pa.RecordBatch) -> None:
        """Adds rows; those that the watermark has passed are late."""
        layout = self.order.layout
        run = pieces_of(layout, rows)
        times = times_in(layout, run)
        if self.watermark_us is not None and len(run):
            timely = times > self.watermark_us
            self.late_rows += len(run) - int(np.count_nonzero(timely))
            run, times = subset(layout, run, timely), times[timely]
        self.add_rows(run, sections_of(times, width_bits(self.spec.delays_ms, self._gap_us)))

    def due(self, watermark_us: int) -> Run:
        """The rows that the watermark passes in this epoch, and those whose gap it passes, by hash."""
        layout, parts = self.order.layout, list[Run]()
        for run in self._reached(watermark_us):
            passed = self._passed(times_in(layout, run), watermark_us)
            if passed.any():
                parts.append(subset(layout, run, passed))
        return ordered(concatenated(parts, layout))

    def _passed(self, times: I64, watermark_us: int) -> Flags:
        passed: Flags = times <= watermark_us
        before_us, gap_us = self.watermark_us, self._gap_us
        if before_us is None:
            return passed
        is_over = (times <= watermark_us - gap_us) & (times > before_us - gap_us)
        return passed & (times > before_us) | is_over

    def _reached(self, watermark_us: int) -> Iterator[Run]:
        """Runs that have all such rows."""
        for bucket in sorted(at for at in self._fresh if self._is_reached(at, watermark_us)):
            yield self._arranged(bucket)
        for segment in (*self.segments, *self.spilled):
            for bucket in sorted(segment.sections):
                if not self._is_reached(bucket, watermark_us):
                    continue
                source = self._source(segment, bucket)
                if isinstance(source, Run):
                    yield source
                else:
                    yield from segment.scan(bucket, READ_ROWS)

    def _is_reached(self, bucket: int, watermark_us: int) -> bool:
        """Whether the watermark passes a row of the bucket in this epoch, or the gap behind one."""
        first, last = times_of(bucket)
        return any(
            first + after_us <= watermark_us
            and (self.watermark_us is None or last + after_us > self.watermark_us)
            for after_us in (0, self._gap_us)
        )

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        raise TypeError("rows that wait have no results")


def waiting_rows(
    spec: OperatorSpec, share: Share, files: Files, segments: list[Segment], watermark_us: int | None
) -> WaitingRows:
    return WaitingRows(spec, share, files, segments, watermark_us, ByHash(spec))
