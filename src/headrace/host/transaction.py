"""One attempt at one batch of one partition: rows in, results out, a new version at the end.

Invariants: the next batch sees nothing before `commit` returns; a stale transaction cannot publish.
Threads: its own calls come one after another; `stale` is set by another thread under the partition's mutex.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.coordinator.frontier import advance, watermark_ms
from headrace.errors import Fenced
from headrace.format.manifest import Manifest
from headrace.host.contract import Summary, Ticket
from headrace.store.contract import Store
from headrace.store.segment import Segment

if TYPE_CHECKING:
    from headrace.host.partition import Partition

APPLY_ROWS = 1 << 16  # rows are folded in blocks of this many or up to twice that: few, long kernel calls
APPLY_BYTES = 8 << 20


class PartitionTransaction:
    """A `Transaction` over a store."""

    def __init__(
        self, partition: Partition, ticket: Ticket, store: Store, base: Manifest | None, run: int
    ) -> None:
        self.stale = False
        self._partition, self._ticket, self._store, self._base, self._run = (
            partition,
            ticket,
            store,
            base,
            run,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._rows_in = self._rows_out = 0
        self._sealing: Future[list[Segment]] | None = None
        self._late_before = store.late_rows
        self._frontiers: list[int | None] = []
        self._watermark_ms: int | None = None
        self._spent = {"apply": 0.0, "finish": 0.0, "seal": 0.0, "publish": 0.0}

    def apply(self, rows: pa.RecordBatch) -> None:
        self._check()
        self._waiting.append(rows)
        self._rows_in += rows.num_rows
        if _enough(self._waiting):
            self._fold()

    def finish(self, seen_ms: Sequence[int | None]) -> Iterator[pa.RecordBatch]:
        self._check()
        self._fold()
        self._advance(seen_ms)
        self._seal()
        results = self._store.results(self._closed_through_us)
        while True:
            begun = time.perf_counter()
            batch = next(results, None)
            self._spent["finish"] += time.perf_counter() - begun
            if batch is None:
                return
            self._rows_out += batch.num_rows
            yield batch

    def commit(self) -> Summary:
        self._check()
        assert self._sealing is not None, "finish comes before commit"
        sealed = self._sealing.result()
        begun = time.perf_counter()
        with self._partition.mutex:
            self._check()
            settled = self._partition.settled_segments(self._store.segments, self._ticket, self._run)
            segments = self._live([*settled, *sealed])
            manifest = self._manifest(segments)
            self._partition.home.publisher.publish(manifest, self._base)
            self._store.settle(segments, self._closed_through_us)
            self._partition.end(self, manifest)
        self._spent["publish"] = time.perf_counter() - begun
        self._partition.upkeep(self._ticket)
        return self._summary(manifest, sealed)

    def abort(self) -> None:
        if self._sealing is not None:
            wait([self._sealing])
        with self._partition.mutex:
            self._partition.end(self, None)

    def _check(self) -> None:
        if self.stale:
            raise Fenced(
                f"attempt {self._ticket.attempt} of batch {self._ticket.batch}, partition "
                f"{self._ticket.partition} was overtaken by a newer attempt",
                hint="nothing to do: the newer attempt goes on",
            )

    def _fold(self) -> None:
        if not self._waiting:
            return
        begun = time.perf_counter()
        block = pa.concat_batches(self._waiting)
        self._waiting = []
        for part in _parts(block):
            self._store.apply(part)
        self._spent["apply"] += time.perf_counter() - begun

    def _seal(self) -> None:
        """Begin to write what the batch changed; it goes on while the results are read."""
        begun = time.perf_counter()
        write = self._store.gather(self._closed_through_us)
        self._spent["finish"] += time.perf_counter() - begun

        def seal() -> list[Segment]:
            begun = time.perf_counter()
            sealed = write()
            self._spent["seal"] = time.perf_counter() - begun
            return sealed

        self._sealing = self._partition.sealers.submit(seal)

    def _advance(self, seen_ms: Sequence[int | None]) -> None:
        delays = self._ticket.operator.delays_ms
        before = [None] * len(delays) if self._base is None else list(self._base.frontiers_ms)
        self._frontiers = advance(before, seen_ms) if delays else []
        self._watermark_ms = watermark_ms(self._frontiers, delays) if delays else None

    @property
    def _closed_through_us(self) -> int | None:
        """The bound below which windows are closed; it never moves back."""
        bounds = [
            self._store.watermark_us,
            None if self._watermark_ms is None else self._watermark_ms * 1000,
        ]
        return max((bound for bound in bounds if bound is not None), default=None)

    def _live(self, segments: list[Segment]) -> list[Segment]:
        bound = self._closed_through_us
        return [segment for segment in segments if self._store.is_live(segment, bound)]

    def _manifest(self, segments: list[Segment]) -> Manifest:
        late = self._store.late_rows - self._late_before
        return self._partition.home.manifest(
            ticket=self._ticket,
            run=self._run,
            base=self._base,
            segments=segments,
            closed_through_us=self._closed_through_us,
            frontiers_ms=self._frontiers,
            late_rows=late,
            keys=self._store.keys_after(self._closed_through_us),
        )

    def _summary(self, manifest: Manifest, sealed: list[Segment]) -> Summary:
        ms = {step: round(seconds * 1000, 3) for step, seconds in self._spent.items()}
        return Summary(
            partition=self._ticket.partition,
            version=manifest.version,
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            late_rows=self._store.late_rows - self._late_before,
            keys=manifest.keys,
            memory_bytes=self._store.memory_bytes,
            state_bytes=sum(segment.size for segment in manifest.segments),
            written_bytes=sum(segment.size for segment in sealed),
            apply_ms=ms["apply"],
            finish_ms=ms["finish"],
            seal_ms=ms["seal"],
            publish_ms=ms["publish"],
            watermark_ms=self._watermark_ms,
        )


def _parts(block: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The block, cut where Spark sent a larger batch: a store makes room for one part at a time."""
    parts = max(1, block.num_rows // APPLY_ROWS, min(block.num_rows, block.nbytes // APPLY_BYTES))
    for start, end in pairwise(block.num_rows * number // parts for number in range(parts + 1)):
        yield block.slice(start, end - start)


def _enough(batches: list[pa.RecordBatch]) -> bool:
    rows: int = sum(batch.num_rows for batch in batches)
    size: int = sum(batch.nbytes for batch in batches)
    return rows >= APPLY_ROWS or size >= APPLY_BYTES
