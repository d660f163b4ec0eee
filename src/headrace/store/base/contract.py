"""The store contract: the state of one partition of one operator, as the host uses it.

    rows ─▶ apply* ─▶ gather ─▶ results ─▶ settle      (one epoch)

Invariant: a store that is dropped at any moment and opened again over the segments of the last `settle`
continues as if the later epochs had never run. What `gather` writes has no effect before `settle`.
Capabilities that few stores have come with a default answer, so the host never tests a store's class.

Threads: one transaction at a time calls a store. What `gather` returns is written in another thread while
`results` is read. A `Job` runs in a third thread at any time and reads committed segments only. Of
everything else, only `memory_bytes` may be read meanwhile, because growing tables move
their arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Literal

import pyarrow as pa

from headrace.plan.reading import ReadAhead
from headrace.plan.spec import OperatorSpec, StoreName
from headrace.store.base.ahead_counts import AheadCounts
from headrace.store.base.files import Files, Gathered, Staging
from headrace.store.base.jobs import Job
from headrace.store.base.waits import StateWaits
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment

Request = Literal["read", "write", "remind", "due"]  # of a processor in Spark's worker


class Store(ABC):
    """The state of one partition."""

    spec: OperatorSpec
    files: Files  # of the running epoch
    segments: list[Segment]  # of the last committed version, oldest first, all kinds
    watermark_us: int | None  # of the last committed version; None before the first; it never moves back
    late_rows: int  # dropped since the store was opened

    # ── one epoch ────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def apply(self, rows: pa.RecordBatch) -> None:
        """Applies rows of `input_schema`; rows of closed windows are dropped and counted."""

    @abstractmethod
    def gather(self, watermark_us: int | None) -> Gathered:
        """The changes of the epoch that outlive the watermark.

        Writing them returns all segments of the epoch, oldest first, and shares no data with `results`.
        """

    @abstractmethod
    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """The results of this epoch, as batches of `output_schema`."""

    @abstractmethod
    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        """Commits the epoch in memory: `segments` are those of the new version; closed windows are gone."""

    # ── size ─────────────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Bytes in memory, to be compared with the store's share of the host's limit."""

    @property
    def needed_bytes(self) -> int:
        """Bytes in memory without those that were read ahead: the store's claim on a larger share."""
        return self.memory_bytes

    @abstractmethod
    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        """Whether any row of the segment is still needed at that watermark."""

    @abstractmethod
    def keys_after(self, watermark_us: int | None) -> int:
        """Rows of state at that watermark, as far as known without reading the disk."""

    @abstractmethod
    def maintenance(self, many: int | None = None) -> Job | None:
        """The next job, if one is due; with `many`, only if more segments than that piled up."""

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def announce(self, rows: pa.RecordBatch) -> None:
        """Begins to fetch state of the rows that are applied next; returns at once."""
        return

    @property
    def looks_up(self) -> bool:
        """Whether `apply` would read from disk now.

        It reads least if rows come in large blocks ordered by hash: each part of a block then needs only a
        part of the files.
        """
        return False

    @property
    def takes_hints(self) -> bool:
        """Whether hints may spare reads now."""
        return self.looks_up

    def waited(self) -> StateWaits:
        """The waits for state since the store was opened; a store that counts none has none."""
        return StateWaits()

    def look_ahead(self, threads: Executor | None) -> None:  # noqa: B027
        """Begins to read the state of expected rows in these threads; None ends it."""

    def expect(self, rows: pa.RecordBatch) -> None:  # noqa: B027
        """Rows with these hashes, and times where rows have times, will be applied soon."""

    def ahead_counts(self) -> AheadCounts:
        """What reading ahead did since the store was opened."""
        return AheadCounts()

    @property
    def read_ahead(self) -> ReadAhead:
        """The sessions that ended since the store was opened, and those that were read ahead."""
        return ReadAhead()

    # ── requests of a processor ──────────────────────────────────────────────────────────────

    def answer(self, request: Request, rows: pa.RecordBatch, until_ms: int) -> Iterator[pa.RecordBatch]:
        """Answers of `output_schema` to a request of the worker."""
        raise TypeError(f"{type(self).__name__} takes rows, not requests")

    # ── change of layout ─────────────────────────────────────────────────────────────────────

    @property
    def stored_as(self) -> StoreName:
        """The store whose layout the segments have; manifests record it."""
        return self.spec.store

    @property
    def verdict(self) -> str:
        """What an observer counted and chose; empty for a store that is not observed."""
        return ""

    @property
    def keeps_files(self) -> bool:
        """Whether committed segments must stay for now, because they are being rewritten."""
        return False

    def begin_epoch(self, staging: Staging) -> None:  # noqa: B027
        """Called between two batches: the moment at which a layout may change."""

    def take_unnamed(self) -> list[SegmentFile]:
        """Staged segments that the commit under way must name; each is returned once."""
        return []

    def abandon(self) -> list[SegmentFile]:
        """Staged segments that no version will name; nothing else is called afterwards."""
        return []
