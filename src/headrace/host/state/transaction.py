"""One attempt at one batch of one partition: rows in, results out, a new version at the end.

How the version is committed is the business of the injected strategy (`strategy`).
Invariants: the next batch sees nothing before `commit` returns; a fenced transaction can neither publish
nor log; nothing is logged or published before shared storage has the version before.
Threads: its own calls come one after another; `stale` is set by another thread under the partition's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.pipeline import Epoch as PipelineEpoch
from headrace.clock import Clock
from headrace.errors import Fenced
from headrace.format.manifest import Manifest
from headrace.host.state.reads import ReadAccount
from headrace.host.state.run_guard import RunGuard
from headrace.host.state.spans import BackgroundSpans
from headrace.host.state.strategy import CommitStrategy, Committed, Version
from headrace.kernels.core.order import by_hash
from headrace.plan.frontier import advance, watermark_ms
from headrace.plan.spec import HASH, rows_in
from headrace.store.base.budget import PartitionShare
from headrace.store.base.contract import Request, Store
from headrace.store.segments.reader import Segment
from headrace.wire.contract import Hidden, ProcessorTimes, Span, Summary, Ticket

APPLY_ROWS = 1 << 16  # rows are folded in blocks of this many or up to twice that: few, long kernel calls
APPLY_BYTES = 8 << 20
HINTS_MAX = 64  # messages that wait for the next rows; the oldest is lost


class Versions(Protocol):
    """The versions of the partition that a transaction belongs to."""

    background: BackgroundSpans  # of work that no batch waits for
    opened_ms: float  # reading the transaction's base; 0 where memory had it

    def await_published(self, version: int | None) -> PipelineEpoch | None:
        """Waits until shared storage has the version; raises why it failed."""

    def abort(self, transaction: PartitionTransaction) -> None:
        """The transaction is over; its store is dropped."""


class PartitionTransaction:
    """A `Transaction` over a store. With a guard, only the newest start of the query commits."""

    guard: RunGuard | None = None

    def __init__(
        self,
        versions: Versions,
        home: PartitionHome,
        ticket: Ticket,
        store: Store,
        base: Manifest | None,
        strategy: CommitStrategy,
        share: PartitionShare,
        clock: Clock,
    ) -> None:
        self.stale = False
        self.store = store
        self._versions, self._home, self._ticket, self._base = versions, home, ticket, base
        self._strategy, self._share, self._now_ms = strategy, share, clock.monotonic_ms
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._rows_in = self._rows_out = 0
        self._late_before = store.late_rows
        self._ahead_before = store.read_ahead
        self._reads = ReadAccount(store, home.files, ticket.lookahead)
        self._hints: deque[pa.RecordBatch] = deque(maxlen=HINTS_MAX)  # that came while it runs
        self._frontiers: list[int | None] = []
        self._watermark_ms: int | None = None
        self._read_ms = 0.0  # of the input's time, what was not spent on applying
        self._spent_ms = dict.fromkeys(("apply", "finish", "wait", "critical"), 0.0)

    def apply(self, rows: pa.RecordBatch) -> None:
        self.check()
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self._rows_in += rows_in(rows)
        self._expect(rows)
        if self._waiting_bytes >= self._block_bytes or (
            self._waiting_rows >= APPLY_ROWS and not self.store.looks_up
        ):
            self.fold()

    def expect(self, hints: pa.RecordBatch) -> None:
        """Hints from another thread; the store gets them with the next rows."""
        self._hints.append(hints)

    def hints_left(self) -> list[pa.RecordBatch]:
        """The hints that its rows came too early for; each is returned once."""
        left = list(self._hints)
        self._hints.clear()
        return left

    def _expect(self, rows: pa.RecordBatch) -> None:
        """The door's lookahead: rows wait for their block to fill, and their state is read meanwhile."""
        if self._ticket.lookahead and self.store.takes_hints:
            while self._hints:
                self.store.expect(self._hints.popleft())
            self.store.expect(rows)

    def finish(self, seen_ms: Sequence[int | None]) -> Iterator[pa.RecordBatch]:
        self.check()
        self._read_ms = self._strategy.spans.ended_since_begin("read") - self._spent_ms["apply"]
        self.fold()
        self._advance(seen_ms)
        self._gather()
        results = self.store.results(self._closed_through_us)
        while True:
            begun = self._now_ms()
            batch = next(results, None)
            self._spend("finish", begun, "emit")
            if batch is None:
                return
            self._rows_out += batch.num_rows
            yield batch

    def times(self) -> ProcessorTimes:
        """The watermarks of this batch by Spark's rule: that of late rows, and that of timers."""
        late_us = None if self._base is None else self._base.closed_through_us
        return ProcessorTimes(None if late_us is None else late_us // 1000, self._spark_watermark_ms)

    def answer(self, request: Request, rows: pa.RecordBatch, until_ms: int) -> Iterator[pa.RecordBatch]:
        """Runs a request of the worker."""
        self.check()
        begun = self._now_ms()
        with self._reads.rows(rows.num_rows):
            yield from self.store.answer(request, rows, until_ms)
        self._share.uses(self.store.needed_bytes + self._strategy.files.nbytes)
        self._spend("apply", begun, "apply")

    def _spend(self, step: str, begun_ms: float, phase: str) -> None:
        lasted_ms = self._now_ms() - begun_ms
        self._spent_ms[step] += lasted_ms
        self._strategy.spans.ended(phase, lasted_ms)

    def commit(self) -> Summary:
        self.check()
        begun = self._now_ms()
        previous = self._versions.await_published(self._ticket.base)
        self._spend("wait", begun, "wait")
        if self.guard is not None:
            self.guard.check()
        committed = self._strategy.commit(self)
        self._spent_ms["critical"] = self._now_ms() - begun
        self._share.batch_ended(self.store.needed_bytes)
        return self._summary(committed, previous)

    def abort(self) -> None:
        self._strategy.abort()
        self._versions.abort(self)

    def check(self) -> None:
        if self.stale:
            raise Fenced(
                f"attempt {self._ticket.attempt} of batch {self._ticket.batch}, partition "
                f"{self._ticket.partition} was overtaken by a newer attempt",
                hint="nothing to do: the newer attempt goes on",
            )

    def fold(self) -> None:
        """Applies the rows that wait for their block to fill."""
        if not self._waiting:
            return
        begun = self._now_ms()
        block = pa.concat_batches(self._waiting)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if block.num_rows > APPLY_ROWS and self.store.looks_up:
            block = _ordered(block)
        parts = list(_parts(block))
        for part, following in zip_longest(parts, parts[1:]):
            if following is not None:
                self.store.announce(following)
            with self._reads.rows(part.num_rows):
                self.store.apply(part)
            self._share.uses(self.store.needed_bytes + self._strategy.files.nbytes)
        self._spend("apply", begun, "apply")

    @property
    def _block_bytes(self) -> int:
        """Rows that wait to be ordered take no more memory than the store's tables may."""
        return min(APPLY_BYTES, self._share.limit_bytes)

    def _gather(self) -> None:
        """Begins to write what the batch changed; that goes on while results are read."""
        begun = self._now_ms()
        gathered = self.store.gather(self._closed_through_us)
        self._spent_ms["finish"] += self._now_ms() - begun
        self._strategy.start(self, gathered)
        if self.guard is not None:
            self.guard.refresh()

    # ── the version ────────────────────────────────────────────────────────────────────

    def _advance(self, seen_ms: Sequence[int | None]) -> None:
        delays = self._ticket.operator.delays_ms
        before = [None] * len(delays) if self._base is None else list(self._base.frontiers_ms)
        self._frontiers = advance(before, seen_ms) if delays else []
        work = self._ticket.operator.work
        if not delays or work.is_interactive:
            self._watermark_ms = self._spark_watermark_ms
        elif self._ticket.watermark_ms is not None:
            self._watermark_ms = self._ticket.watermark_ms
        else:
            self._watermark_ms = watermark_ms(self._frontiers, delays)

    @property
    def _spark_watermark_ms(self) -> int | None:
        """The watermark that Spark plans this batch with: the data of earlier batches decides it."""
        delays = self._ticket.operator.delays_ms
        if delays and self._ticket.watermark_ms is not None:
            return self._ticket.watermark_ms
        return watermark_ms(self._base.frontiers_ms, delays) if delays and self._base is not None else None

    @property
    def _closed_through_us(self) -> int | None:
        """The time up to which windows are closed; it never moves back."""
        bounds = [
            self.store.watermark_us,
            None if self._watermark_ms is None else self._watermark_ms * 1000,
        ]
        return max((bound for bound in bounds if bound is not None), default=None)

    def live(self, segments: Sequence[Segment]) -> list[Segment]:
        bound = self._closed_through_us
        return [segment for segment in segments if self.store.is_live(segment, bound)]

    def version(self, segments: Sequence[Segment]) -> Version:
        live, bound = self.live(segments), self._closed_through_us
        manifest = self._home.manifest(
            ticket=self._ticket,
            run=self._strategy.files.run,
            base=self._base,
            segments=live,
            closed_through_us=bound,
            frontiers_ms=self._frontiers,
            late_rows=self._late_rows,
            keys=self.store.keys_after(bound),
            store=self.store.stored_as,
        )
        return Version(self._ticket, self.store, self._base, manifest, live, bound)

    @property
    def _late_rows(self) -> int:
        return self.store.late_rows - self._late_before

    def _summary(self, committed: Committed, previous: PipelineEpoch | None) -> Summary:
        spent_ms = {**self._spent_ms, **self._strategy.spent_ms}
        ms = {step: round(spent, 3) for step, spent in spent_ms.items()}
        manifest, ahead = committed.manifest, self.store.read_ahead.since(self._ahead_before)
        reads, background = self._reads.reads(), self._versions.background.drain()
        return Summary(
            partition=self._ticket.partition,
            version=manifest.version,
            rows_in=self._rows_in,
            rows_out=self._rows_out,
            late_rows=self._late_rows,
            keys=manifest.keys,
            memory_bytes=self.store.memory_bytes,
            state_bytes=manifest.state_bytes,
            written_bytes=committed.written_bytes,
            apply_ms=ms["apply"],
            finish_ms=ms["finish"],
            seal_ms=ms.get("seal", 0.0),
            publish_ms=ms.get("publish", 0.0),
            watermark_ms=self._watermark_ms,
            commit=self._ticket.commit,
            log_ms=ms.get("log", 0.0),
            wait_previous_ms=ms["wait"],
            critical_ms=ms["critical"],
            hidden=_hidden(previous),
            prefetch_hits=ahead.hits,
            prefetch_misses=ahead.misses,
            prefetched=ahead.ahead,
            prefetch_in_vain=ahead.in_vain,
            store=manifest.store,
            verdict=self.store.verdict,
            run=manifest.run,
            open_ms=self._versions.opened_ms,
            read_ms=round(max(0.0, self._read_ms), 3),
            segments=len(manifest.segments),
            spans=(*self._strategy.spans.recorded(), *background, *self._reads.spans),
            reads=reads,
        )


def _hidden(epoch: PipelineEpoch | None) -> Hidden | None:
    """What was done for an epoch after its task had returned."""
    if epoch is None:
        return None
    ms = {name: round(spent, 3) for name, spent in epoch.spent_ms.items()}
    spans = tuple(Span(name, end_ms - round(ms[name]), end_ms) for name, end_ms in epoch.ended_ms.items())
    version = epoch.work.version
    return Hidden(version, ms.get("seal", 0.0), ms.get("upload", 0.0), ms.get("publish", 0.0), spans)


def _ordered(block: pa.RecordBatch) -> pa.RecordBatch:
    """The rows ordered by hash; rows of one key stay in their order."""
    return block.take(pa.array(by_hash(block.column(HASH).to_numpy().view(np.uint64))))


def _parts(block: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The block in parts of bounded size: a store makes room for one part at a time."""
    parts = max(1, block.num_rows // APPLY_ROWS, min(block.num_rows, block.nbytes // APPLY_BYTES))
    for start, end in pairwise(block.num_rows * number // parts for number in range(parts + 1)):
        yield block.slice(start, end - start)
