"""Finishes the commits that hosts of this machine left in its log, without a host.

Every step is the one that a host would do, under the same names, so doing it beside a host does no harm.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.commit import EpochCommit
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.log_check import recoverable
from headrace.checkpoint.rescale.folders import folders_at
from headrace.checkpoint.restore import newest_manifest
from headrace.clock import SystemClock
from headrace.format.names import Attempt, manifests_of, parse_manifest
from headrace.plan.partitions.layouts import Layout


@dataclass(frozen=True)
class StateOf:
    """Where the state of one operator is."""

    location: str
    query: str
    operator: str
    layouts: tuple[Layout, ...]

    def prefixes(self, version: int) -> list[str]:
        """The folders of the partitions that have the version."""
        folders = folders_at(self.query, self.operator, self.layouts, version)
        return [folder.prefix for folder in folders]


def missing(blobs: Blobs, state: StateOf, version: int) -> tuple[int, ...]:
    """The partitions that have no manifest of `version` on shared storage."""
    prefixes = state.prefixes(version)
    return tuple(n for n, prefix in enumerate(prefixes) if shared(blobs, prefix, version) is None)


def shared(blobs: Blobs, prefix: str, version: int) -> Attempt | None:
    """Who wrote a version on shared storage; None when it is not there."""
    newest = newest_manifest(blobs.list(manifests_of(prefix, version)))
    return None if newest is None else parse_manifest(newest)


def logged(local: Path, state: StateOf, version: int) -> tuple[int, ...]:
    """The partitions that have `version` in this machine's log, whole; damaged entries are set aside."""
    blobs = Locations(local).open(state.location, create=False)
    homes = (_home(blobs, local, state, prefix) for prefix in state.prefixes(version))
    return tuple(number for number, home in enumerate(homes) if _entry(home, version) is not None)


def redo(local: Path, state: StateOf, version: int) -> tuple[int, ...]:
    """Publish `version` of every partition that has it in this machine's log; which ones."""
    blobs = Locations(local).open(state.location, create=False)
    done = []
    for number, prefix in enumerate(state.prefixes(version)):
        home = _home(blobs, local, state, prefix)
        entry = _entry(home, version)
        newest = shared(blobs, home.prefix, version)
        if entry is not None and (newest is None or newest < entry):
            with suppress(FileNotFoundError):  # a host, or another task of this machine, has just done it
                _publish(home, entry)
                done.append(number)
    return tuple(done)


def _home(blobs: Blobs, local: Path, state: StateOf, prefix: str) -> PartitionHome:
    return PartitionHome.of(blobs, prefix, SystemClock(), LocalLog.of(local, state.location, prefix))


def _entry(home: PartitionHome, version: int) -> Attempt | None:
    assert home.log is not None
    return max(recoverable(home, home.log, version), default=None)


def _publish(home: PartitionHome, attempt: Attempt) -> None:
    log = home.log
    assert log is not None
    log.open()
    work = EpochCommit.from_log(home, log, log.read(attempt))
    work.seal(lambda: True, again=True)
    work.upload(lambda nbytes: None)
    work.publish()
    work.retire()
