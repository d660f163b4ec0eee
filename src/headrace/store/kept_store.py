"""A store of kept rows: appended, read when their window closes, deleted bucket by bucket.

    rows ─▶ buckets in memory ─▶ (seal) ─▶ files per bucket and epoch ─▶ (window closes) ─▶ groups

Invariants: a row is stored once however many windows cover it. The rows of a committed segment may also be
held in memory, as the very run that was sealed; what is not held is read again. Nothing is ever rewritten,
but that a bucket of very many files is put together in the background. A bucket is dead as a whole, once
the last window over it takes no more rows. The order of segments means nothing: they are sorted by bucket.
Threads: as `store.contract` says; a reader thread of `results` reads segments one chunk ahead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.spec import OperatorSpec, Window
from headrace.store.budget import MemoryBudget
from headrace.store.contract import Compaction, FileKind, Gathered, Seal, Write
from headrace.store.kept import Flags, KeptLayout, pieces_of, taken, times_in
from headrace.store.kept_buckets import Due, bucket_of, closed_for_good_us, crowd, due_windows, files_of
from headrace.store.kept_groups import Computation, groups_of
from headrace.store.kept_merge import compact_kept, concatenated, packed
from headrace.store.merge import Source
from headrace.store.run import Run
from headrace.store.segment import Segment, index_bytes
from headrace.store.slices import is_closed

CHUNK_ROWS = 1 << 16
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


@dataclass
class _Bucket:
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
class KeptStore:
    """State of one partition."""

    spec: OperatorSpec
    budget: MemoryBudget
    seal: Seal
    segments: list[Segment]
    watermark_us: int | None
    order: Order
    computation: Callable[[KeptLayout], Computation]  # a fresh one per epoch
    late_rows: int = 0
    spilled: list[Segment] = field(default_factory=list)
    _fresh: dict[int, _Bucket] = field(default_factory=dict)
    _held: dict[Segment, dict[int, Run]] = field(default_factory=dict)
    _pending: list[dict[int, Run]] = field(default_factory=list)  # one per segment that is being sealed
    _fresh_bytes: int = 0
    _held_bytes: int = 0

    def __post_init__(self) -> None:
        self.segments = by_bucket(self.segments)
        self._kind = kept_kind(self.order.layout)

    @property
    def _window(self) -> Window:
        assert self.spec.window is not None, "rows are kept until their window closes"
        return self.spec.window

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        run, layout = pieces_of(self.order.layout, rows), self.order.layout
        buckets = bucket_of(times_in(layout, run), self._window, self.order.bucket_us)
        if self.watermark_us is not None and len(run):
            timely = closed_for_good_us(buckets, self._window) > self.watermark_us
            if not timely.all():
                self.late_rows += len(run) - int(np.count_nonzero(timely))
                run, buckets = taken(layout, run, timely), buckets[timely]
        for bucket, piece in _cut(layout, run, buckets):
            self._fresh.setdefault(bucket, _Bucket()).add(piece)
            self._fresh_bytes += piece.nbytes
        self._make_room()

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def memory_bytes(self) -> int:
        indexes = index_bytes((*self.segments, *self.spilled))
        return self._fresh_bytes + self._held_bytes + indexes

    def _make_room(self) -> None:
        """Let go of held rows, the last ones to be read first; write fresh ones where they are too many.

        Ordering a bucket needs as much memory again, so fresh rows take half of the share at most.
        """
        self._let_go()
        share = self.budget.share_bytes
        if self._fresh_bytes > share // 2 or self.memory_bytes > share:
            self._spill()

    def _let_go(self) -> None:
        share, used = self.budget.share_bytes, self.memory_bytes
        if used <= share:
            return
        over = used - share * 3 // 4
        held = [(bucket, segment) for segment, runs in self._held.items() for bucket in runs]
        for bucket, segment in sorted(held, key=lambda at: -at[0]):
            if over <= 0:
                return
            over -= self._drop_held(segment, bucket)

    def _drop_held(self, segment: Segment, bucket: int) -> int:
        """Let go of the rows of a bucket in a segment; how many bytes that frees."""
        freed = self._held[segment].pop(bucket).nbytes
        self._held_bytes -= freed
        if not self._held[segment]:
            del self._held[segment]
        return freed

    def _spill(self) -> None:
        """Write the rows of the running epoch to segments, bucket by bucket."""
        for group in self._files(sorted(self._fresh)):
            sections = [(bucket, [self._arranged(bucket, pack=False)]) for bucket in group]
            self.spilled.append(self.seal(self._kind, sections))
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
            if not is_closed(bucket, self._window, watermark_us)
        }
        stored = sum(
            entry.rows
            for segment in (*self.segments, *self.spilled)
            for bucket, entry in segment.sections.items()
            if bucket in live
        )
        return stored + sum(fresh.rows for bucket, fresh in self._fresh.items() if bucket in live)

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
        share, each = self.budget.share_bytes, _row_bytes([*old, *new])
        chunk_bytes = min(CHUNK_BYTES, max(CHUNK_BYTES_MIN, share // 8))
        chunk_rows = max(1, min(CHUNK_ROWS, chunk_bytes // each))
        pass_rows = max(chunk_rows, share // 2 // each)
        return Reading(due.start_us, end_us, old, new, chunk_rows, pass_rows, due.changed_only)

    def _source(self, segment: Segment, bucket: int) -> Source:
        held = self._held.get(segment, {}).get(bucket)
        return (segment, bucket) if held is None else held

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def gather(self, watermark_us: int | None) -> Write:
        live = [at for at in sorted(self._fresh) if not is_closed(at, self._window, watermark_us)]
        self._pending = [{at: self._arranged(at) for at in group} for group in self._files(live)]
        sections = (
            (self._kind, [(bucket, [run]) for bucket, run in runs.items()]) for runs in self._pending
        )
        return Gathered(self.seal, tuple(sections), tuple(self.spilled))

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        sealed = segments[max(0, len(segments) - len(self._pending)) :]  # what an epoch wrote comes last
        for segment, runs in zip(sealed, self._pending, strict=False):
            if {bucket: entry.rows for bucket, entry in segment.sections.items()} == _rows(runs):
                self._held[segment] = runs
        self.segments, self.spilled, self.watermark_us = by_bucket(segments), [], watermark_us
        self._pending, self._fresh, self._fresh_bytes = [], {}, 0
        there = set(self.segments)
        self._held = {segment: self._live(runs) for segment, runs in self._held.items() if segment in there}
        self._held_bytes = sum(run.nbytes for runs in self._held.values() for run in runs.values())
        for segment in self.segments:
            for bucket in segment.sections:
                if is_closed(bucket, self._window, watermark_us):
                    segment.release(bucket)
        self._let_go()

    def _live(self, runs: dict[int, Run]) -> dict[int, Run]:
        return {at: run for at, run in runs.items() if not is_closed(at, self._window, self.watermark_us)}

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return not all(is_closed(bucket, self._window, watermark_us) for bucket in segment.sections)

    def compaction(self, many: int | None = None) -> Compaction | None:
        if many is not None and len(self.segments) <= many:
            return None
        chosen = crowd([min(segment.sections) for segment in self.segments])
        if chosen is None:
            return None
        inputs, kind, window, bound = (
            tuple(self.segments[chosen]),
            self._kind,
            self._window,
            self.watermark_us,
        )

        def write(path: Path, stop: threading.Event) -> bool:
            def live(bucket: int) -> bool:
                return not is_closed(bucket, window, bound)

            return compact_kept(inputs, path, kind.shape, live, stop) is not None

        return Compaction(inputs, kind, write)


def kept_kind(layout: KeptLayout) -> FileKind:
    """The kind of segments that kept rows are in."""
    return FileKind("rows", layout, appends=True)


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
        yield int(buckets[part[0]]), taken(layout, run, part)


def _rows(runs: dict[int, Run]) -> dict[int, int]:
    return {bucket: len(run) for bucket, run in runs.items()}


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
