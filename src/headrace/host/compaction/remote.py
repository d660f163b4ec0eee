"""One compaction by a compactor, from the host's side: requested, verified, or left to the host.

Invariants: inputs are on shared storage when a compactor gets their names. Its output is named by a version
only after `verify`. Whatever fails on the way costs time: the host then compacts the inputs itself.
Threads: any; a job stays in the thread that runs it.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.checkpoint.home import PartitionHome, entry_of
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import HeadraceError, StateCorrupt
from headrace.files.table import Place
from headrace.format.manifest import SegmentEntry
from headrace.format.names import blob_name
from headrace.host.compaction.place import JobPlace, described
from headrace.host.compaction.verify import verify, verify_sample
from headrace.host.compaction.workers import Declined, Worker, Workers
from headrace.plan.times import TIMES
from headrace.store.base.jobs import Compaction, Merge
from headrace.store.segments.clip import ClippedSegment
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.wire.compaction import CompactionRequest, read_secret

log = logging.getLogger("headrace.compaction")

_LOOK_MS = 50.0


class RemoteCompaction:
    """Compactors, as a host uses them."""

    def __init__(self, workers: Workers, clock: Clock = SYSTEM_CLOCK) -> None:
        self._workers, self._clock = workers, clock

    @classmethod
    def to(cls, addresses: list[str], secret: Path) -> RemoteCompaction:
        return cls(Workers(addresses, read_secret(secret)))

    def run(
        self, home: PartitionHome, job: Compaction, place: JobPlace, stop: threading.Event
    ) -> list[SegmentFile] | None:
        """The verified output; None: the host has to do the job."""
        if job.merge is None or not self._are_shared(home, job, stop):
            return None
        for worker in self._workers.in_turn():
            began_ms = self._clock.monotonic_ms()
            try:
                written = self._by(worker, home, job, job.merge, place, stop)
            except Declined as error:
                log.info("%s", error)
                continue
            except Exception as error:
                if stop.is_set():
                    raise
                self._workers.failed(worker)
                log.warning("%s: %s did not compact: %s", home.prefix, worker.address, error)
                return None
            self._workers.worked(worker)
            took_ms = round(self._clock.monotonic_ms() - began_ms)
            if written is not None:
                log.info("%s: %s", home.prefix, described(job.inputs, [written], worker.address, took_ms))
            return None if written is None else [written]
        return None

    def _are_shared(self, home: PartitionHome, job: Compaction, stop: threading.Event) -> bool:
        """Whether all inputs are on shared storage; waits a while for those that are being uploaded."""
        until_ms = self._clock.monotonic_ms() + 1000 * TIMES.compactor_inputs_s
        while not all(_is_shared(home, segment) for segment in job.inputs):
            if self._clock.monotonic_ms() >= until_ms or self._clock.wait(stop, _LOOK_MS):
                return False
        return True

    def _by(
        self,
        worker: Worker,
        home: PartitionHome,
        job: Compaction,
        merge: Merge,
        place: JobPlace,
        stop: threading.Event,
    ) -> SegmentFile | None:
        request = request_of(home, job, merge, place)
        answer = self._workers.answer(worker, request, stop)
        if "entry" not in answer:
            return None  # no row lives: the host sees for itself
        entry = _entry(answer, request)
        try:
            return self._verified(home, job, merge, entry)
        except BaseException:
            with suppress(HeadraceError):
                home.blobs.delete(blob_name(home.prefix, request.output))
            raise

    def _verified(
        self, home: PartitionHome, job: Compaction, merge: Merge, entry: SegmentEntry
    ) -> SegmentFile:
        output = home.open_segment(entry.name, merge.kind, entry.crc, entry.size)
        try:
            verify(merge, job.inputs, output, entry)
            with tempfile.TemporaryDirectory(prefix="sample-") as folder:
                verify_sample(merge, job.inputs, output, Path(folder))
        except BaseException:
            output.close()
            raise
        return output


def request_of(home: PartitionHome, job: Compaction, merge: Merge, place: JobPlace) -> CompactionRequest:
    """The job as data."""
    return CompactionRequest(
        location=place.ticket.location,
        prefix=home.prefix,
        operator=place.ticket.operator.to_json(),
        store=place.stored_as,
        kind=merge.kind.name,
        merge=merge.name,
        sections=merge.sections,
        dead_through_us=merge.dead_through_us,
        living=merge.living,
        inputs=tuple(entry_of(segment) for segment in job.inputs),
        output=place.new_name(),
    )


def _entry(answer: dict[str, Any], request: CompactionRequest) -> SegmentEntry:
    entry = SegmentEntry(**answer["entry"])
    if (entry.name, entry.kind) != (request.output, request.kind):
        raise StateCorrupt(f"the compactor wrote {entry.name!r} in place of {request.output!r}")
    return entry


def _is_shared(home: PartitionHome, segment: Segment) -> bool:
    whole = segment.whole if isinstance(segment, ClippedSegment) else segment
    return isinstance(whole, SegmentFile) and home.files.place_of(whole.file.id) is Place.SHARED
