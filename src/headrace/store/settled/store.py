"""The store of windows over rows in their order: by count, or up to a marker.

    rows ─▶ waiting (`WaitingRows`) ─▶ the watermark passes them ─▶ open windows (`OpenRows`) ─▶ groups

Invariants: a row is in one of the two stores. It moves in the epoch whose watermark passes it, with all
other such rows of its key, in the order of event time. So windows do not depend on arrival. Where sessions
end after a gap, the first store has a row until the gap is over, and then names its key to the second one.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.plan.spec import OperatorSpec
from headrace.row.chunks import READ_ROWS
from headrace.row.run import Run
from headrace.store.append.bucket_store import kept_kind
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files, Gathered
from headrace.store.base.jobs import Job
from headrace.store.base.share import Part, PartialShare, Share
from headrace.store.rows.groups import Computations
from headrace.store.rows.kept_layout import KeptLayout, subset
from headrace.store.segments.reader import Segment
from headrace.store.settled.open_rows import (
    OPEN,
    OpenRows,
    Ordering,
    Watermarks,
    Whole,
    open_kind,
    open_spec,
)
from headrace.store.settled.waiting import waiting_rows

HALF = Part(1, 2)  # of the share, for each of the two stores


def settled_kinds(spec: OperatorSpec) -> tuple[FileKind, ...]:
    """The kinds of segments that the store writes."""
    return (kept_kind(KeptLayout(spec)), open_kind(spec))


class SettledStore(Store):
    """Rows of one partition that wait for the watermark, or for the rest of their window."""

    def __init__(
        self,
        spec: OperatorSpec,
        share: Share,
        files: Files,
        segments: list[Segment],
        watermark_us: int | None,
        known_keys: int,
        computations: Computations,
        ordering: Ordering,
    ) -> None:
        self.spec, self.segments = spec, segments
        self._computations, self._layout = computations, KeptLayout(spec)
        waiting, opened = _split(segments)
        half = PartialShare(share, HALF)
        self.waiting = waiting_rows(spec, half, files, waiting, watermark_us)
        self.open = OpenRows(
            open_spec(spec), half, files, opened, watermark_us, known_keys,
            kept=self._layout, ordering=ordering,
        )  # fmt: skip
        self._whole: list[Whole] = []

    @property
    def files(self) -> Files:
        return self.waiting.files

    @files.setter
    def files(self, files: Files) -> None:
        self.waiting.files = self.open.files = files

    @property
    def watermark_us(self) -> int | None:
        return self.waiting.watermark_us

    @watermark_us.setter
    def watermark_us(self, watermark_us: int | None) -> None:
        self.waiting.watermark_us = self.open.watermark_us = watermark_us

    @property
    def late_rows(self) -> int:
        return self.waiting.late_rows

    @late_rows.setter
    def late_rows(self, late_rows: int) -> None:
        self.waiting.late_rows = late_rows

    # ── one epoch ────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        self.waiting.apply(rows)

    def gather(self, watermark_us: int | None) -> Gathered:
        """Moves the rows that the watermark passes, and gathers both stores."""
        if watermark_us is not None:
            due = self.waiting.due(watermark_us)
            passed = Watermarks(self.watermark_us, watermark_us)
            self._whole = [self.open.advance(part, passed) for part in _by_key(self._layout, due)]
        waiting, opened = self.waiting.gather(watermark_us), self.open.gather(watermark_us)
        spilled = (*waiting.spilled, *opened.spilled)
        return Gathered(self.files, (*opened.sections, *waiting.sections), spilled)

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        compute = self._computations(self._layout)
        for whole in self._whole:
            yield from compute(whole.rows, whole.groups)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self._whole = []
        waiting, opened = _split(segments)
        self.waiting.settle(waiting, watermark_us)
        self.open.settle(opened, watermark_us)
        self.segments = segments

    # ── size ─────────────────────────────────────────────────────────────────────────────────

    @property
    def looks_up(self) -> bool:
        return False  # rows wait first

    @property
    def memory_bytes(self) -> int:
        return self.waiting.memory_bytes + self.open.memory_bytes

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return segment.kind == OPEN or self.waiting.is_live(segment, watermark_us)

    def keys_after(self, watermark_us: int | None) -> int:
        return self.open.keys_after(watermark_us)

    def maintenance(self, many: int | None = None) -> Job | None:
        return self.waiting.maintenance(many) or self.open.maintenance(many)


def _split(segments: list[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Segments of rows that wait, and of open windows."""
    return (
        [segment for segment in segments if segment.kind != OPEN],
        [segment for segment in segments if segment.kind == OPEN],
    )


def _by_key(layout: KeptLayout, run: Run, rows: int = READ_ROWS) -> Iterator[Run]:
    """Parts of a run that is ordered by hash; no hash is in two parts."""
    start = 0
    while start < len(run):
        end = int(np.searchsorted(run.order, run.order[min(start + rows, len(run)) - 1], side="right"))
        yield subset(layout, run, slice(start, end))
        start = end
