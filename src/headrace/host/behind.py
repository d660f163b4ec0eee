"""How a transaction commits behind the next batch: its rows go to the log, the rest is the pipeline's.

The log gets the rows while the results are read, and its name at the commit: the first acknowledgement. The
store settles when the rows are sealed, in another thread, before the next batch begins.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.log import Draft
from headrace.checkpoint.pipeline import Epoch
from headrace.checkpoint.steps import Moment
from headrace.errors import TryAgain
from headrace.format.manifest import Manifest
from headrace.format.names import Attempt
from headrace.host.commit import EpochCommit
from headrace.host.contract import Hidden, Ticket
from headrace.host.home import entry_of
from headrace.host.local import LocalSealer
from headrace.store.contract import Gathered, Store, Write
from headrace.store.segment import Segment

if TYPE_CHECKING:
    from headrace.host.partition import Partition


@dataclass(frozen=True)
class Drafted:
    """An epoch whose rows are in the log, where it has no name yet."""

    draft: Draft
    written: list[Segment]  # sealed before it was logged
    seal: Write | None  # seals the rest, and returns `written` first

    @property
    def nbytes(self) -> int:
        """About what the epoch adds to the state."""
        return self.draft.row_bytes + sum(segment.size for segment in self.written)


def draft(partition: Partition, write: Write) -> Drafted:
    """Write what the epoch changed to the log, unsealed where the store can say it."""
    partition.crew.probe(Moment.LOGGING)
    if not isinstance(write, Gathered):
        written = write()
        return Drafted(partition.log.draft([]), written, None)
    assert isinstance(write.seal, LocalSealer), "this epoch's files are local"
    return Drafted(partition.log.draft(write.seal.plan(write.sections)), [*write.spilled], write)


@dataclass(frozen=True)
class Closing:
    """An epoch that is about to have its first acknowledgement."""

    partition: Partition
    ticket: Ticket
    store: Store
    drafted: Drafted
    known: list[Segment]  # of the version, but for those that are still to be sealed
    bound_us: int | None  # windows that end up to here are closed


def vouched_for(base: Manifest, ticket: Ticket, run: int) -> bool:
    """Whether the coordinator knows of no newer attempt at the base; only another driver can have one."""
    return (base.run, base.attempt) == (run, ticket.base_attempt)


@dataclass(frozen=True)
class Asked:
    """Shared storage was asked who wrote a base, while the batch that starts from it went on."""

    answer: Future[Attempt | None]
    expected: Attempt

    def check(self, wait: Callable[[Future[Any]], Any]) -> None:
        """Wait for the answer, and raise when somebody newer has written the base again."""
        truth: Attempt | None = wait(self.answer)
        if truth is not None and truth > self.expected:
            raise TryAgain(
                f"version {truth.version} was written again by run {truth.run}, attempt {truth.attempt}, "
                "while this host had it in memory",
                hint="nothing to do: the next attempt reads that one",
            )


def log_epoch(closing: Closing, manifest: Manifest, base: Manifest | None) -> EpochCommit:
    """Give the entry its name. Caller holds the partition's mutex."""
    partition = closing.partition
    before = set() if base is None else {entry.name for entry in base.segments}
    names = (entry_of(segment).name for segment in closing.known)
    local = [name for name in names if name not in before]
    parent = None if base is None else base.name
    closing.drafted.draft.finish(manifest, parent, closing.ticket.operator.to_json(), local)
    partition.crew.probe(Moment.LOGGED)
    seal = _sealing(closing, manifest)
    return EpochCommit(
        partition.home, partition.log, manifest, base, frozenset(local), partition.mutex, seal
    )


def _sealing(closing: Closing, manifest: Manifest) -> Callable[[Callable[[], bool]], Manifest | None]:
    """Seals from memory, and settles the store on the local files."""
    partition, drafted = closing.partition, closing.drafted

    def seal(is_current: Callable[[], bool]) -> Manifest | None:
        fresh = [] if drafted.seal is None else drafted.seal()[len(drafted.written) :]
        with partition.mutex:
            if not is_current():
                return None
            entries = (*manifest.segments, *(entry_of(segment) for segment in fresh))
            sealed = replace(manifest, segments=entries)
            closing.store.settle([*closing.known, *fresh], closing.bound_us)
            partition.sealed(sealed, closing.ticket)
            return sealed

    return seal


def hidden_of(epoch: Epoch | None) -> Hidden | None:
    """What was done for an epoch after its task had returned."""
    if epoch is None:
        return None
    ms = {name: round(spent, 3) for name, spent in epoch.spent_ms.items()}
    return Hidden(epoch.work.version, ms.get("seal", 0.0), ms.get("upload", 0.0), ms.get("publish", 0.0))
