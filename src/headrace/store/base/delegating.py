"""A store around another store: everything is forwarded unless a subclass overrides it.

Invariant: every member of the contract is forwarded, the ones with a default answer included.
Threads: as the inner store.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor

import pyarrow as pa

from headrace.plan.reading import ReadAhead
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.store.base.ahead_counts import AheadCounts
from headrace.store.base.contract import Request, Store
from headrace.store.base.files import Files, Gathered, Staging
from headrace.store.base.jobs import Job
from headrace.store.base.waits import StateWaits
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment


class DelegatingStore(Store):
    """Forwards the whole contract to `_inner`."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def spec(self) -> OperatorSpec:  # type: ignore[override]  # nothing sets it
        return self._inner.spec

    @property
    def files(self) -> Files:
        return self._inner.files

    @files.setter
    def files(self, files: Files) -> None:
        self._inner.files = files

    @property
    def segments(self) -> list[Segment]:
        return self._inner.segments

    @segments.setter
    def segments(self, segments: list[Segment]) -> None:
        self._inner.segments = segments

    @property
    def watermark_us(self) -> int | None:
        return self._inner.watermark_us

    @watermark_us.setter
    def watermark_us(self, watermark_us: int | None) -> None:
        self._inner.watermark_us = watermark_us

    @property
    def late_rows(self) -> int:
        return self._inner.late_rows

    @late_rows.setter
    def late_rows(self, late_rows: int) -> None:
        self._inner.late_rows = late_rows

    # ── one epoch ────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        self._inner.apply(rows)

    def gather(self, watermark_us: int | None) -> Gathered:
        return self._inner.gather(watermark_us)

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        return self._inner.results(watermark_us)

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self._inner.settle(segments, watermark_us)

    # ── size ─────────────────────────────────────────────────────────────────────────────────

    @property
    def memory_bytes(self) -> int:
        return self._inner.memory_bytes

    @property
    def needed_bytes(self) -> int:
        return self._inner.needed_bytes

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return self._inner.is_live(segment, watermark_us)

    def keys_after(self, watermark_us: int | None) -> int:
        return self._inner.keys_after(watermark_us)

    def maintenance(self, many: int | None = None) -> Job | None:
        return self._inner.maintenance(many)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def announce(self, rows: pa.RecordBatch) -> None:
        self._inner.announce(rows)

    @property
    def looks_up(self) -> bool:
        return self._inner.looks_up

    @property
    def takes_hints(self) -> bool:
        return self._inner.takes_hints

    def waited(self) -> StateWaits:
        return self._inner.waited()

    def look_ahead(self, threads: Executor | None) -> None:
        self._inner.look_ahead(threads)

    def expect(self, rows: pa.RecordBatch) -> None:
        self._inner.expect(rows)

    def ahead_counts(self) -> AheadCounts:
        return self._inner.ahead_counts()

    @property
    def read_ahead(self) -> ReadAhead:
        return self._inner.read_ahead

    # ── requests of a processor ──────────────────────────────────────────────────────────────

    def answer(self, request: Request, rows: pa.RecordBatch, until_ms: int) -> Iterator[pa.RecordBatch]:
        return self._inner.answer(request, rows, until_ms)

    # ── change of layout ─────────────────────────────────────────────────────────────────────

    @property
    def stored_as(self) -> StoreName:
        return self._inner.stored_as

    @property
    def verdict(self) -> str:
        return self._inner.verdict

    @property
    def keeps_files(self) -> bool:
        return self._inner.keeps_files

    def begin_epoch(self, staging: Staging) -> None:
        self._inner.begin_epoch(staging)

    def take_unnamed(self) -> list[SegmentFile]:
        return self._inner.take_unnamed()

    def abandon(self) -> list[SegmentFile]:
        return self._inner.abandon()
