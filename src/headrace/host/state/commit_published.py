"""The synchronous commit: segments and manifest are on shared storage before the acknowledgement."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress

from headrace.checkpoint.epoch_files import PublishedFiles
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.steps import Moment
from headrace.host.state.spans import PhaseSpans
from headrace.host.state.strategy import Committed, Epoch, Owner, Version
from headrace.store.base.files import Gathered
from headrace.store.segments.reader import Segment


class PublishedCommit:
    """Publishes before it acknowledges (`CommitStrategy`)."""

    def __init__(self, owner: Owner, crew: Crew, files: PublishedFiles) -> None:
        self.spent_ms = {"seal": 0.0, "publish": 0.0}
        self.spans = PhaseSpans(crew.clock)
        self._owner, self._crew, self._files = owner, crew, files
        self._flushing: Future[list[Segment]] | None = None

    @property
    def files(self) -> PublishedFiles:
        return self._files

    def start(self, epoch: Epoch, gathered: Gathered) -> None:
        self._flushing = self._crew.sealers.submit(self._flush, epoch, gathered)

    def _flush(self, epoch: Epoch, gathered: Gathered) -> list[Segment]:
        begun = self._crew.clock.monotonic_ms()
        self._crew.probe(Moment.SEALING)
        written = gathered()
        live = {id(segment) for segment in epoch.live(written)}
        self._files.keep(lambda segment: id(segment) in live)
        self.spent_ms["seal"] = self._crew.clock.monotonic_ms() - begun
        self.spans.ended("seal", self.spent_ms["seal"])
        self._crew.probe(Moment.SEALED)
        return written

    def commit(self, epoch: Epoch) -> Committed:
        assert self._flushing is not None, "finish comes before commit"
        written: list[Segment] = self._crew.wait(self._flushing)
        begun = self._crew.clock.monotonic_ms()
        version = self._owner.close(epoch, self._files, written, self._publish)
        self.spent_ms["publish"] = self._crew.clock.monotonic_ms() - begun
        self.spans.ended("publish", self.spent_ms["publish"])
        self._owner.maintain(version.ticket)
        return Committed(version.manifest, sum(segment.size for segment in written))

    def _publish(self, version: Version) -> None:
        self._crew.probe(Moment.PUBLISHING)
        self._files.home.publisher.publish(version.manifest, version.base)
        self._crew.probe(Moment.PUBLISHED)
        version.store.settle(version.segments, version.closed_through_us)
        self._owner.published(version)

    def abort(self) -> None:
        with suppress(Exception):  # `commit` reports it
            if self._flushing is not None:
                self._crew.wait(self._flushing)
        self._files.discard()
