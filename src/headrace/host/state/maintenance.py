"""Maintenance of one partition: jobs on its store, and garbage collection of its files.

Invariants: a job only reads committed segments and writes staged files; those become state when a commit
names them. At most one finished job waits for a commit. A batch waits for a job only while more than
`SEGMENTS_MAX` segments exist.
Threads: the partition's lock guards every call, except `overdue` and `after_commit` of a synchronous
commit; jobs and collections run in the lanes of `upkeep`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from headrace.checkpoint.collect import collect
from headrace.checkpoint.epoch_files import EpochFiles
from headrace.checkpoint.home import PartitionHome
from headrace.clock import Clock
from headrace.format.manifest import Manifest
from headrace.format.names import operator_prefix
from headrace.host.state.spans import BackgroundSpans
from headrace.host.state.upkeep import Upkeep
from headrace.store.base.contract import Store
from headrace.store.base.jobs import Job, Taken
from headrace.store.segments.clip import ClippedSegment
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.wire.contract import Span, Ticket

COLLECT_EVERY = 8  # commits between two garbage collections
SEGMENTS_MANY = 24  # with more than this at a restart, the first batch waits for one job
SEGMENTS_MAX = 128  # with more than this, every batch waits for the job under way


@dataclass(frozen=True)
class Finished:
    """A finished job and its files."""

    job: Job
    written: list[SegmentFile]


Deliver = Callable[[Store, Finished], None]  # brings a finished job back under the partition's lock


class Maintenance:
    """The jobs of one partition."""

    def __init__(self, home: PartitionHome, upkeep: Upkeep, clock: Clock, spans: BackgroundSpans) -> None:
        self._home, self._upkeep = home, upkeep
        self._clock, self._spans = clock, spans
        self._waiting: Finished | None = None  # for the next commit
        self._running: Future[None] | None = None  # the newest job
        self._commits = 0  # since the last collection
        self._known: dict[str, Manifest] = {}  # manifests that the collector has read

    def after_commit(self, store: Store | None, ticket: Ticket, deliver: Deliver) -> None:
        """Queues what the partition needs after a commit; cheap when that is nothing."""
        self._commits += 1
        if store is None:
            return
        for segment in store.segments:
            if isinstance(segment, SegmentFile):
                segment.settle()
        self._queue_collection(ticket)
        if self._waiting is None and not self._upkeep.jobs.is_busy(self._home.where):
            self._queue_job(store, deliver)

    def _queue_collection(self, ticket: Ticket) -> None:
        """One collector serves all partitions of the operator."""
        if ticket.partition or (self._commits < COLLECT_EVERY and ticket.batch % COLLECT_EVERY):
            return
        if self._upkeep.collections.submit(self._home.where, lambda: self._collect(ticket)):
            self._commits = 0

    def _queue_job(self, store: Store, deliver: Deliver) -> None:
        job = store.maintenance()
        if job is None:
            return

        def finish() -> None:
            deliver(store, self._run(job))

        self._running = self._upkeep.jobs.submit(self._home.where, finish)

    def overdue(self, store: Store | None) -> Future[None] | None:
        """The job that the next batch waits for, because compaction has fallen behind; None: no wait."""
        if store is None or self._waiting is not None or len(store.segments) <= SEGMENTS_MAX:
            return None
        return self._running

    def relieve(self, store: Store) -> None:
        """Runs one job before the first batch, if earlier applications left many segments.

        An application of few batches ends before a job in the background could become state. Segments that
        are elsewhere, or that a rescale left shared, are left to the background: no batch waits for those.
        """
        if any(segment.is_far or isinstance(segment, ClippedSegment) for segment in store.segments):
            return
        job = store.maintenance(many=SEGMENTS_MANY)
        self._waiting = None if job is None else self._run(job)

    def take(self, finished: Finished, *, is_wanted: bool) -> None:
        """Takes a finished job; an unwanted one is discarded, its store was dropped meanwhile."""
        moment = finished.job.take(finished.written) if is_wanted else Taken.NEVER
        if moment is Taken.NEVER:
            self._home.discard(finished.written)
        elif moment is Taken.AT_COMMIT:
            self._drop_waiting()
            self._waiting = finished

    def commit(self, store: Store, files: EpochFiles) -> Sequence[Segment]:
        """The segments of the store for the next version, with finished jobs named and taken in."""
        for segment in store.take_unnamed():
            files.adopt(segment)
        finished, self._waiting = self._waiting, None
        if finished is None:
            return store.segments
        job, written = finished.job, finished.written
        replaced = None if store.keeps_files else job.replace_in(store.segments, written)
        if replaced is None:
            self._home.discard(written)
            return store.segments
        for segment in written:
            files.adopt(segment)
        return replaced

    def drop(self, store: Store | None) -> None:
        """The store is dropped: staged files that no version will name are removed."""
        self._drop_waiting()
        if store is not None:
            self._home.discard(store.abandon())

    def _drop_waiting(self) -> None:
        if self._waiting is not None:
            self._home.discard(self._waiting.written)
        self._waiting = None

    def _run(self, job: Job) -> Finished:
        began_ms = self._clock.now_ms()
        written = job.run(self._home, self._upkeep.stopping)
        self._spans.add(Span("compaction", began_ms, self._clock.now_ms()))
        return Finished(job, written)

    def _collect(self, ticket: Ticket) -> None:
        if ticket.base is not None:
            collect(
                self._home.blobs,
                operator_prefix(ticket.query, ticket.operator.name),
                ticket.base,
                ticket.retain,
                folders=ticket.folders,
                known=self._known,
            )
