"""One attempt at one batch of one partition: rows in, results out, a new version at the end.

A synchronous commit publishes here. The others leave a log entry and hand the epoch to the pipeline.
Invariants: the next batch sees nothing before `commit` returns; a stale transaction can neither publish nor
log; nothing is logged or published before shared storage has the version before.
Threads: its own calls come one after another; `stale` is set by another thread under the partition's mutex.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.checkpoint.pipeline import Epoch
from headrace.checkpoint.steps import Moment
from headrace.coordinator.frontier import advance, watermark_ms
from headrace.errors import Fenced
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt
from headrace.host.behind import Asked, Closing, Drafted, draft, hidden_of, log_epoch, vouched_for
from headrace.host.contract import Summary, Ticket
from headrace.host.home import Sealer
from headrace.host.local import LocalSealer
from headrace.kernels.order import by_hash
from headrace.spec import HASH, rows_in
from headrace.store.contract import LooksUp, ReadsAhead, Store, Write
from headrace.store.migrate import stored_as
from headrace.store.segment import Segment

if TYPE_CHECKING:
    from headrace.host.partition import Partition

APPLY_ROWS = 1 << 16  # rows are folded in blocks of this many or up to twice that: few, long kernel calls
APPLY_BYTES = 8 << 20


class PartitionTransaction:
    """A `Transaction` over a store."""

    def __init__(
        self,
        partition: Partition,
        ticket: Ticket,
        store: Store,
        sealer: Sealer | LocalSealer,
        base: Manifest | None,
        truth: Future[Attempt | None] | None = None,
    ) -> None:
        self.stale = False
        self._partition, self._ticket, self._store, self._sealer, self._base = (
            partition,
            ticket,
            store,
            sealer,
            base,
        )
        self._run = sealer.run
        self._share = partition.share
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._rows_in = self._rows_out = 0
        self._sealing: Future[list[Segment]] | None = None
        self._drafting: Future[Drafted] | None = None
        self._truth = truth  # who wrote the base, as shared storage has it; None: it is known to count
        self._previous: Epoch | None = None
        self._late_before = store.late_rows
        self._ahead_before = _read_ahead(store)
        self._frontiers: list[int | None] = []
        self._watermark_ms: int | None = None
        self._spent = dict.fromkeys(("apply", "finish", "log", "seal", "wait", "publish", "critical"), 0.0)

    def apply(self, rows: pa.RecordBatch) -> None:
        self._check()
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self._rows_in += rows_in(rows)
        if self._waiting_bytes >= self._block_bytes or (
            self._waiting_rows >= APPLY_ROWS and not _looks_up(self._store)
        ):
            self._fold()

    def finish(self, seen_ms: Sequence[int | None]) -> Iterator[pa.RecordBatch]:
        self._check()
        self._fold()
        self._advance(seen_ms)
        self._gather()
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
        begun = time.perf_counter()
        self._previous = self._partition.pipeline.await_published(self._ticket.base)
        self._spent["wait"] = time.perf_counter() - begun
        self._check_base()
        manifest, written = self._publish() if self._drafting is None else self._log(self._drafting)
        self._spent["critical"] = time.perf_counter() - begun
        self._share.batch_ended(self._store.memory_bytes)
        return self._summary(manifest, written)

    def abort(self) -> None:
        with suppress(Exception):  # it is told by `commit`; here it only must be over
            if self._sealing is not None:
                self._partition.crew.wait(self._sealing)
            if self._drafting is not None:
                self._partition.crew.wait(self._drafting).draft.discard()
        if isinstance(self._sealer, Sealer):
            self._sealer.discard()
        with self._partition.mutex:
            self._partition.end(self, None)

    def _check(self) -> None:
        if self.stale:
            raise Fenced(
                f"attempt {self._ticket.attempt} of batch {self._ticket.batch}, partition "
                f"{self._ticket.partition} was overtaken by a newer attempt",
                hint="nothing to do: the newer attempt goes on",
            )

    def _check_base(self) -> None:
        """Another host may have written the base again, in a newer attempt: then that one counts."""
        if self._truth is None or self._base is None:
            return
        asked = Asked(self._truth, self._base.written_by)
        if vouched_for(self._base, self._ticket, self._run):
            self._partition.asked = asked  # the next batch looks
        else:
            asked.check(self._partition.crew.wait)

    def _fold(self) -> None:
        if not self._waiting:
            return
        begun = time.perf_counter()
        block = pa.concat_batches(self._waiting)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if block.num_rows > APPLY_ROWS and _looks_up(self._store):
            block = _ordered(block)
        for part in _parts(block):
            self._store.apply(part)
            self._share.uses(self._store.memory_bytes + self._sealer.nbytes)
        self._spent["apply"] += time.perf_counter() - begun

    @property
    def _block_bytes(self) -> int:
        """Rows that wait for others take no more than the store's tables may."""
        return min(APPLY_BYTES, self._share.share_bytes)

    def _gather(self) -> None:
        """Begin to write what the batch changed; it goes on while the results are read."""
        begun = time.perf_counter()
        write = self._store.gather(self._closed_through_us)
        self._spent["finish"] += time.perf_counter() - begun
        sealers = self._partition.crew.sealers
        if self._ticket.commit == "sync":
            self._sealing = sealers.submit(self._seal, write)
        else:
            self._drafting = sealers.submit(self._draft, write)

    # ── synchronous ──────────────────────────────────────────────────────────────────────────

    def _seal(self, write: Write) -> list[Segment]:
        probe, begun = self._partition.crew.probe, time.perf_counter()
        probe(Moment.SEALING)
        sealed = write()
        assert isinstance(self._sealer, Sealer), "this epoch's files go to storage at once"
        stays = {id(segment) for segment in self._live(sealed)}
        self._sealer.name(lambda segment: id(segment) in stays)
        self._spent["seal"] = time.perf_counter() - begun
        probe(Moment.SEALED)
        return sealed

    def _publish(self) -> tuple[Manifest, int]:
        assert self._sealing is not None, "finish comes before commit"
        sealed: list[Segment] = self._partition.crew.wait(self._sealing)
        probe, begun = self._partition.crew.probe, time.perf_counter()
        with self._partition.mutex:
            self._check()
            settled = self._partition.settled_segments(self._store.segments, self._ticket, self._run)
            segments = self._live([*settled, *sealed])
            manifest = self._manifest(segments)
            probe(Moment.PUBLISHING)
            self._partition.home.publisher.publish(manifest, self._base)
            probe(Moment.PUBLISHED)
            self._store.settle(segments, self._closed_through_us)
            self._partition.end(self, manifest)
        self._spent["publish"] = time.perf_counter() - begun
        self._partition.upkeep(self._ticket)
        return manifest, sum(segment.size for segment in sealed)

    # ── behind the next batch ────────────────────────────────────────────────────────────────

    def _draft(self, write: Write) -> Drafted:
        begun = time.perf_counter()
        drafted = draft(self._partition, write)
        self._spent["log"] = time.perf_counter() - begun
        return drafted

    def _log(self, drafting: Future[Drafted]) -> tuple[Manifest, int]:
        partition = self._partition
        drafted: Drafted = partition.crew.wait(drafting)
        with partition.mutex:
            self._check()
            settled = partition.settled_segments(self._store.segments, self._ticket, self._run)
            known = self._live([*settled, *drafted.written])
            manifest = self._manifest(known)
            closing = Closing(partition, self._ticket, self._store, drafted, known, self._closed_through_us)
            partition.logged(self, log_epoch(closing, manifest, self._base))
        if self._ticket.commit == "upload":
            partition.pipeline.await_sealed(manifest.version)
        return manifest, drafted.nbytes

    # ── what the epoch is ────────────────────────────────────────────────────────────────────

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
            store=stored_as(self._store),
        )

    def _summary(self, manifest: Manifest, written_bytes: int) -> Summary:
        ms = {step: round(seconds * 1000, 3) for step, seconds in self._spent.items()}
        ahead = _read_ahead(self._store)
        return Summary(
            partition=self._ticket.partition,
            version=manifest.version,
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            late_rows=self._store.late_rows - self._late_before,
            keys=manifest.keys,
            memory_bytes=self._store.memory_bytes,
            state_bytes=sum(segment.size for segment in manifest.segments),
            written_bytes=written_bytes,
            apply_ms=ms["apply"],
            finish_ms=ms["finish"],
            seal_ms=ms["seal"],
            publish_ms=ms["publish"],
            watermark_ms=self._watermark_ms,
            commit=self._ticket.commit,
            log_ms=ms["log"],
            wait_previous_ms=ms["wait"],
            critical_ms=ms["critical"],
            hidden=hidden_of(self._previous),
            prefetch_hits=ahead[0] - self._ahead_before[0],
            prefetch_misses=ahead[1] - self._ahead_before[1],
            store=manifest.store,
        )


def _read_ahead(store: Store) -> tuple[int, int]:
    """How often a store has found rows read ahead, and how often not."""
    return (store.prefetch_hits, store.prefetch_misses) if isinstance(store, ReadsAhead) else (0, 0)


def _looks_up(store: Store) -> bool:
    return isinstance(store, LooksUp) and store.looks_up


def _ordered(block: pa.RecordBatch) -> pa.RecordBatch:
    """The rows by hash; those of one key stay in the order in which they came."""
    return block.take(pa.array(by_hash(block.column(HASH).to_numpy().view(np.uint64))))


def _parts(block: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The block, cut where Spark sent a larger batch: a store makes room for one part at a time."""
    parts = max(1, block.num_rows // APPLY_ROWS, min(block.num_rows, block.nbytes // APPLY_BYTES))
    for start, end in pairwise(block.num_rows * number // parts for number in range(parts + 1)):
        yield block.slice(start, end - start)
