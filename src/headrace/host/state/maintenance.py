"""Maintenance of one partition: jobs on its store, and garbage collection of its files.

Invariants: a job only reads committed segments and writes files that no version names; those become state
when a commit names them. The output of a compaction is on shared storage before a commit adopts it, under a
leased name (`format.names`). At most one finished job waits for a commit. A batch waits for a job only
while more than `SEGMENTS_MAX` segments exist.
Threads: the partition's lock guards every call, except `overdue` and `after_commit` of a synchronous
commit; jobs and collections run in the lanes of `upkeep`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from headrace.checkpoint.collect import collect
from headrace.checkpoint.epoch_files import EpochFiles
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Moment
from headrace.errors import HeadraceError
from headrace.files.table import Place
from headrace.format.manifest import Manifest
from headrace.format.names import blob_name, leased_through, operator_prefix
from headrace.host.compaction.place import JobPlace, described
from headrace.host.compaction.remote import RemoteCompaction
from headrace.host.state.spans import BackgroundSpans
from headrace.host.state.upkeep import Upkeep
from headrace.store.base.contract import Store
from headrace.store.base.jobs import Compaction, Job, Taken
from headrace.store.segments.clip import ClippedSegment
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.wire.contract import Span, Ticket

log = logging.getLogger("headrace.compaction")

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

    def __init__(
        self,
        home: PartitionHome,
        upkeep: Upkeep,
        crew: Crew,
        spans: BackgroundSpans,
        remote: RemoteCompaction | None = None,
    ) -> None:
        self._home, self._upkeep, self._remote = home, upkeep, remote
        self._clock, self._probe, self._spans = crew.clock, crew.probe, spans
        self._discarded: list[str] = []  # files on shared storage that no version will name
        self._waiting: Finished | None = None  # for the next commit
        self._running: Future[None] | None = None  # the newest job
        self._commits = 0  # since the last collection
        self._known: dict[str, Manifest] = {}  # manifests that the collector has read

    def after_commit(self, store: Store | None, ticket: Ticket, run: int, deliver: Deliver) -> None:
        """Queues what the partition needs after a commit; cheap when that is nothing."""
        self._commits += 1
        if store is None:
            return
        for segment in store.segments:
            if isinstance(segment, SegmentFile):
                segment.settle()
        self._queue_collection(ticket)
        if self._waiting is None and not self._upkeep.jobs.is_busy(self._home.where):
            self._queue_job(store, JobPlace(ticket, run, store.stored_as), deliver)

    def _queue_collection(self, ticket: Ticket) -> None:
        """One collector serves all partitions of the operator."""
        if ticket.partition or (self._commits < COLLECT_EVERY and ticket.batch % COLLECT_EVERY):
            return
        if self._upkeep.collections.submit(self._home.where, lambda: self._collect(ticket)):
            self._commits = 0

    def _queue_job(self, store: Store, place: JobPlace, deliver: Deliver) -> None:
        job = store.maintenance()
        if job is None:
            return

        def finish() -> None:
            deliver(store, self._run(job, place))
            self._delete_discarded()

        self._running = self._upkeep.jobs.submit(self._home.where, finish)

    def overdue(self, store: Store | None) -> Future[None] | None:
        """The job that the next batch waits for, because compaction has fallen behind; None: no wait."""
        if store is None or self._waiting is not None or len(store.segments) <= SEGMENTS_MAX:
            return None
        return self._running

    def relieve(self, store: Store, ticket: Ticket, run: int) -> None:
        """Runs one job before the first batch, if earlier applications left many segments.

        An application of few batches ends before a job in the background could become state. Segments that
        are elsewhere, or that a rescale left shared, are left to the background: no batch waits for those.
        """
        if any(segment.is_far or isinstance(segment, ClippedSegment) for segment in store.segments):
            return
        job = store.maintenance(many=SEGMENTS_MANY)
        self._waiting = None if job is None else self._run(job, JobPlace(ticket, run, store.stored_as))

    def take(self, finished: Finished, *, is_wanted: bool) -> None:
        """Takes a finished job; an unwanted one is discarded, its store was dropped meanwhile."""
        moment = finished.job.take(finished.written) if is_wanted else Taken.NEVER
        if moment is Taken.NEVER:
            self._discard(finished.written)
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
        is_late = any(leased_through(segment.file.id) < files.ticket.batch for segment in written)
        replaced = None if store.keeps_files or is_late else job.replace_in(store.segments, written)
        if replaced is None:
            self._discard(written)
            return store.segments
        return replaced

    def drop(self, store: Store | None) -> None:
        """The store is dropped: staged files that no version will name are removed."""
        self._drop_waiting()
        if store is not None:
            self._discard(store.abandon())

    def sweep(self) -> None:
        """Deletes outputs that no version will name: after a query has ended, no job of it follows."""
        if not self._discarded or self._upkeep.jobs.submit(self._home.where, self._delete_discarded):
            return
        if self._upkeep.stopping.is_set():  # else the job under way does it
            with suppress(HeadraceError):
                self._delete_discarded()

    def _drop_waiting(self) -> None:
        if self._waiting is not None:
            self._discard(self._waiting.written)
        self._waiting = None

    def _discard(self, written: Iterable[SegmentFile]) -> None:
        """Removes files that no version will name; those on shared storage beside the batches."""
        for segment in written:
            if self._home.files.place_of(segment.file.id) is Place.SHARED:
                self._discarded.append(segment.file.id)
            self._home.discard([segment])

    def _run(self, job: Job, place: JobPlace) -> Finished:
        self._delete_discarded()
        began_ms = self._clock.now_ms()
        self._probe(Moment.COMPACTING)
        written = self._elsewhere(job, place)
        phase = "compaction" if written is None else "remote"
        if written is None:
            written = job.run(self._home, self._upkeep.stopping)
            if isinstance(job, Compaction):
                self._upload(written, place)
        self._probe(Moment.COMPACTED)
        ended_ms = self._clock.now_ms()
        self._spans.add(Span(phase, began_ms, ended_ms))
        if phase == "compaction":
            log.info(
                "%s: %s", self._home.prefix, described(job.inputs, written, "here", ended_ms - began_ms)
            )
        return Finished(job, written)

    def _delete_discarded(self) -> None:
        names, self._discarded = self._discarded, []
        for name in names:
            self._home.blobs.delete(blob_name(self._home.prefix, name))

    def _elsewhere(self, job: Job, place: JobPlace) -> list[SegmentFile] | None:
        """The output of a compactor; None: the host does the job itself."""
        if self._remote is None or not isinstance(job, Compaction):
            return None
        return self._remote.run(self._home, job, place, self._upkeep.stopping)

    def _upload(self, written: Sequence[SegmentFile], place: JobPlace) -> None:
        """Brings the output to shared storage, so that no commit waits for it."""
        for segment in written:
            try:
                self._home.upload_staged(segment, place.new_name())
            except BaseException:
                self._home.discard([segment])
                raise

    def _collect(self, ticket: Ticket) -> None:
        if ticket.base is not None:
            collect(
                self._home.blobs,
                operator_prefix(ticket.query, ticket.operator.name),
                ticket.base,
                ticket.retain,
                folders=ticket.folders,
                known=self._known,
                probe=self._probe,
            )
