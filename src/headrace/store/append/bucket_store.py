"""Rows in buckets of time: appended, flushed per bucket and epoch, deleted bucket by bucket.

    rows ─▶ buckets in memory ─▶ (flush) ─▶ files per bucket and epoch ─▶ (bucket closes) ─▶ dropped

Invariants: rows of a committed segment may also be in memory, as the very run that was flushed; other rows
are read again. Rows are not rewritten, except that a bucket of very many files is compacted. A bucket is
dead as a whole. The order of segments has no meaning: they are sorted by bucket.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from headrace.plan.spec import OperatorSpec
from headrace.row.run import Run
from headrace.store.append.buckets import crowd, files_of
from headrace.store.append.merge import compact_kept, concatenated, packed
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Files, Gathered
from headrace.store.base.jobs import Compaction, Job, Merge, live_sections
from headrace.store.base.room import FRESH_MAX, RESIDENT_MAX, evict, fits
from headrace.store.base.share import Share
from headrace.store.rows.kept_layout import KeptLayout, subset
from headrace.store.segments.merge import Source
from headrace.store.segments.reader import Segment, index_bytes


class Arrangement(Protocol):
    """How the rows of a bucket are ordered."""

    layout: KeptLayout

    def arranged(self, run: Run) -> Run:
        """The rows ordered by the order key; `order` of the run given has hashes."""


@dataclass
class FreshRows:
    """Rows of the running epoch: pieces as they came, or one arranged run."""

    pieces: list[Run] = field(default_factory=list)
    arranged: bool = False
    rows: int = 0
    nbytes: int = 0

    def add(self, piece: Run) -> None:
        self.pieces.append(piece)
        self.rows += len(piece)
        self.nbytes += piece.nbytes
        self.arranged = False


@dataclass
class BucketStore(Store):
    """State of one partition; derived stores decide what a bucket is, and when it closes."""

    spec: OperatorSpec
    share: Share
    files: Files
    segments: list[Segment]
    watermark_us: int | None
    order: Arrangement
    late_rows: int = 0
    spilled: list[Segment] = field(default_factory=list)
    _fresh: dict[int, FreshRows] = field(default_factory=dict)
    _resident: dict[Segment, dict[int, Run]] = field(default_factory=dict)
    _pending: list[dict[int, Run]] = field(default_factory=list)  # one per segment that is being flushed
    _fresh_bytes: int = 0
    _resident_bytes: int = 0

    def __post_init__(self) -> None:
        self.segments = by_bucket(self.segments)
        self._kind = kept_kind(self.order.layout)

    @abstractmethod
    def is_dead(self, bucket: int, watermark_us: int | None) -> bool:
        """Whether no row of the bucket is needed at that watermark. Pure: other threads call it too."""

    def add_rows(self, run: Run, buckets: np.ndarray) -> None:
        """Adds rows to the buckets given for each of them."""
        for bucket, piece in _cut(self.order.layout, run, buckets):
            self._fresh.setdefault(bucket, FreshRows()).add(piece)
            self._fresh_bytes += piece.nbytes
        self._make_room()

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def memory_bytes(self) -> int:
        indexes = index_bytes((*self.segments, *self.spilled))
        return self._fresh_bytes + self._resident_bytes + indexes

    def _make_room(self) -> None:
        """Evicts held rows, the last ones to be read first; spills fresh ones where they are too many.

        Ordering a bucket needs as much memory again, so fresh rows take half of the share at most.
        """
        self._evict()
        if self._fresh_bytes > FRESH_MAX.of(self.share) or not fits(self):
            self.spill()

    def _evict(self) -> None:
        if not fits(self):
            resident = [(bucket, segment) for segment, runs in self._resident.items() for bucket in runs]
            evict(self, sorted(resident, key=lambda at: -at[0]), self._drop_resident, RESIDENT_MAX)

    def _drop_resident(self, at: tuple[int, Segment], _: int) -> int:
        """Evicts the rows of a bucket in a segment; how many bytes that frees."""
        bucket, segment = at
        freed = self._resident[segment].pop(bucket).nbytes
        self._resident_bytes -= freed
        if not self._resident[segment]:
            del self._resident[segment]
        return freed

    def spill(self) -> None:
        """Write the rows of the running epoch to segments, bucket by bucket."""
        for group in self._files(sorted(self._fresh)):
            sections = [(bucket, [self._arranged(bucket, pack=False)]) for bucket in group]
            self.spilled.append(self.files.spill(self._kind, sections))
            for bucket in group:
                self._fresh_bytes -= self._fresh.pop(bucket).nbytes

    def _files(self, buckets: list[int]) -> list[list[int]]:
        return [buckets[part] for part in files_of([self._fresh[bucket].nbytes for bucket in buckets])]

    def _arranged(self, bucket: int, pack: bool = True) -> Run:
        """The fresh rows of a bucket as one run in the store's order, packed if it will be read again."""
        fresh = self._fresh[bucket]
        if not fresh.arranged:
            before, pieces = fresh.nbytes, fresh.pieces
            fresh.pieces = []
            run = concatenated(pieces, self.order.layout)
            pieces.clear()
            run = self.order.arranged(run)
            fresh.pieces = [packed(run, self.order.layout) if pack else run]
            fresh.nbytes, fresh.arranged = fresh.pieces[0].nbytes, True
            self._fresh_bytes += fresh.nbytes - before
        return fresh.pieces[0]

    def _stored_buckets(self) -> set[int]:
        return {bucket for segment in (*self.segments, *self.spilled) for bucket in segment.sections}

    def keys_after(self, watermark_us: int | None) -> int:
        """Rows of state once the buckets that `watermark_us` closes are gone."""
        live = {
            bucket: 0
            for bucket in self._stored_buckets() | set(self._fresh)
            if not self.is_dead(bucket, watermark_us)
        }
        stored = sum(
            entry.rows
            for segment in (*self.segments, *self.spilled)
            for bucket, entry in segment.sections.items()
            if bucket in live
        )
        return stored + sum(fresh.rows for bucket, fresh in self._fresh.items() if bucket in live)

    def _source(self, segment: Segment, bucket: int) -> Source:
        run = self._resident.get(segment, {}).get(bucket)
        return (segment, bucket) if run is None else run

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def gather(self, watermark_us: int | None) -> Gathered:
        live = [at for at in sorted(self._fresh) if not self.is_dead(at, watermark_us)]
        self._pending = [{at: self._arranged(at) for at in group} for group in self._files(live)]
        sections = (
            (self._kind, [(bucket, [run]) for bucket, run in runs.items()]) for runs in self._pending
        )
        return Gathered(self.files, tuple(sections), tuple(self.spilled))

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        flushed = segments[max(0, len(segments) - len(self._pending)) :]  # what an epoch wrote comes last
        for segment, runs in zip(flushed, self._pending, strict=False):
            if {bucket: entry.rows for bucket, entry in segment.sections.items()} == _rows(runs):
                self._resident[segment] = runs
        self.segments, self.spilled, self.watermark_us = by_bucket(segments), [], watermark_us
        self._pending, self._fresh, self._fresh_bytes = [], {}, 0
        live = set(self.segments)
        self._resident = {
            segment: self._live(runs) for segment, runs in self._resident.items() if segment in live
        }
        self._resident_bytes = sum(run.nbytes for runs in self._resident.values() for run in runs.values())
        for segment in self.segments:
            for bucket in segment.sections:
                if self.is_dead(bucket, watermark_us):
                    segment.release(bucket)
        self._evict()

    def _live(self, runs: dict[int, Run]) -> dict[int, Run]:
        return {at: run for at, run in runs.items() if not self.is_dead(at, self.watermark_us)}

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return not all(self.is_dead(bucket, watermark_us) for bucket in segment.sections)

    def maintenance(self, many: int | None = None) -> Job | None:
        if many is not None and len(self.segments) <= many:
            return None
        chosen = crowd([min(segment.sections) for segment in self.segments])
        if chosen is None:
            return None
        inputs = self.segments[chosen]
        live = live_sections(inputs, lambda bucket: not self.is_dead(bucket, self.watermark_us))
        return Compaction.of(inputs, Merge("kept", self.spec, self._kind, live), merge_kept)


def merge_kept(by: Merge, inputs: Sequence[Segment], path: Path, stop: threading.Event) -> bool:
    """All rows of live buckets."""
    live = set(by.sections)
    return compact_kept(inputs, path, by.kind.shape, live.__contains__, stop) is not None


def kept_kind(layout: KeptLayout) -> FileKind:
    """The kind of segments that kept rows are in."""
    return FileKind("rows", layout, appends=True, hash_word=layout.hash_word if layout.hashed else None)


def by_bucket(segments: list[Segment]) -> list[Segment]:
    """Segments by their first bucket, the largest first: files of one bucket are neighbours."""
    return sorted(segments, key=lambda segment: (min(segment.sections), -segment.size))


def _cut(layout: KeptLayout, run: Run, buckets: np.ndarray) -> Iterator[tuple[int, Run]]:
    """The rows of each bucket, in their order."""
    if len(run) == 0:
        return
    if (buckets == buckets[0]).all():
        yield int(buckets[0]), run
        return
    order = np.argsort(buckets, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(buckets[order])) + 1):
        yield int(buckets[part[0]]), subset(layout, run, part)


def _rows(runs: dict[int, Run]) -> dict[int, int]:
    return {bucket: len(run) for bucket, run in runs.items()}
