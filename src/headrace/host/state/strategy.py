"""What a commit strategy is, and what it needs of the partition and of the epoch.

A strategy is injected into a transaction: `commit_published` publishes before it acknowledges,
`commit_logged` logs before it acknowledges and publishes behind the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.checkpoint.commit import EpochCommit, IsCurrent
from headrace.checkpoint.epoch_files import EpochFiles
from headrace.format.manifest import Manifest
from headrace.host.state.base_check import BaseCheck
from headrace.host.state.spans import PhaseSpans
from headrace.store.base.contract import Store
from headrace.store.base.files import Gathered
from headrace.store.segments.reader import Segment
from headrace.wire.contract import Ticket


@dataclass(frozen=True)
class Version:
    """A version that is about to be committed."""

    ticket: Ticket
    store: Store
    base: Manifest | None
    manifest: Manifest
    segments: list[Segment]  # of the manifest
    closed_through_us: int | None  # windows that end up to here are closed


class Epoch(Protocol):
    """The epoch of one transaction."""

    @property
    def store(self) -> Store: ...

    def check(self) -> None:
        """Raises `Fenced` when a newer attempt owns the partition."""

    def live(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments that have live rows after the epoch."""

    def version(self, segments: Sequence[Segment]) -> Version:
        """The version that the live ones of `segments` make."""


class Owner(Protocol):
    """The partition, as a commit sees it."""

    def close(
        self,
        epoch: Epoch,
        files: EpochFiles,
        written: Sequence[Segment],
        conclude: Callable[[Version], None],
    ) -> Version:
        """Makes the epoch a version: `conclude` runs under the partition's lock, unless fenced."""

    def published(self, version: Version) -> None:
        """The version is on shared storage. Only within `conclude`."""

    def logged(self, work: EpochCommit) -> None:
        """The version is in the log; the pipeline does the rest. Only within `conclude`."""

    def sealed(self, version: Version, fresh: Sequence[Segment], is_current: IsCurrent) -> Manifest | None:
        """Settles the store on the segments of a logged version; None when fenced."""

    def await_sealed(self, version: int) -> None:
        """Waits until the logged version is sealed; raises why it failed."""

    def check_later(self, check: BaseCheck) -> None:
        """The next batch looks at the answer of shared storage."""

    def maintain(self, ticket: Ticket) -> None:
        """Looks after the partition once a commit is done."""


@dataclass(frozen=True)
class Committed:
    """The result of a commit."""

    manifest: Manifest
    written_bytes: int


class CommitStrategy(Protocol):
    """How one transaction commits. Threads: one caller; `start` works on in the background."""

    spent_ms: dict[str, float]  # by step
    spans: PhaseSpans  # when the transaction's phases ran

    @property
    def files(self) -> EpochFiles: ...

    def start(self, epoch: Epoch, gathered: Gathered) -> None:
        """Begins to write the epoch's changes while results are read."""

    def commit(self, epoch: Epoch) -> Committed:
        """Makes the epoch durable; returns when it may be acknowledged."""

    def abort(self) -> None:
        """Waits for what `start` began, and removes its files."""
