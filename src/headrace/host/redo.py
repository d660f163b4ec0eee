"""Finishes the commits that hosts of this machine left in its log, without a host.

Every step is the one that a host would do, under the same names, so doing it beside a host does no harm.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.publish import ManifestPublisher
from headrace.checkpoint.restore import newest_manifest
from headrace.clock import SystemClock
from headrace.format.names import Attempt, manifests_of, parse_manifest, partition_prefix
from headrace.host.commit import EpochCommit
from headrace.host.home import PartitionHome


@dataclass(frozen=True)
class StateOf:
    """Where the state of one operator is."""

    location: str
    query: str
    operator: str
    partitions: int


def missing(blobs: Blobs, state: StateOf, version: int) -> tuple[int, ...]:
    """The partitions that have no manifest of `version` on shared storage."""
    prefixes = (partition_prefix(state.query, state.operator, n) for n in range(state.partitions))
    return tuple(n for n, prefix in enumerate(prefixes) if shared(blobs, prefix, version) is None)


def shared(blobs: Blobs, prefix: str, version: int) -> Attempt | None:
    """Who wrote a version on shared storage; None when it is not there."""
    newest = newest_manifest(blobs.list(manifests_of(prefix, version)))
    return None if newest is None else parse_manifest(newest)


def logged(local: Path, state: StateOf, version: int) -> tuple[int, ...]:
    """The partitions that have `version` in this machine's log."""
    return tuple(n for n in range(state.partitions) if _entry(_log(local, state, n), version) is not None)


def redo(local: Path, state: StateOf, version: int) -> tuple[int, ...]:
    """Publish `version` of every partition that has it in this machine's log; which ones."""
    blobs = Locations(local).open(state.location, create=False)
    done = []
    for number in range(state.partitions):
        log = _log(local, state, number)
        entry = _entry(log, version)
        prefix = partition_prefix(state.query, state.operator, number)
        newest = shared(blobs, prefix, version)
        if entry is not None and (newest is None or newest < entry):
            with suppress(FileNotFoundError):  # a host, or another task of this machine, has just done it
                _publish(blobs, prefix, log, entry)
                done.append(number)
    return tuple(done)


def _log(local: Path, state: StateOf, partition: int) -> LocalLog:
    return LocalLog.of(local, state.location, partition_prefix(state.query, state.operator, partition))


def _entry(log: LocalLog, version: int) -> Attempt | None:
    return max((entry for entry in log.entries() if entry.version == version), default=None)


def _publish(blobs: Blobs, prefix: str, log: LocalLog, attempt: Attempt) -> None:
    publisher = ManifestPublisher(blobs, prefix, SystemClock())
    home = PartitionHome(blobs, prefix, publisher, itertools.count(), log)
    log.open()
    work = EpochCommit.from_log(home, log, log.read(attempt), nullcontext())
    work.seal(lambda: True, again=True)
    work.upload(lambda: None)
    work.publish()
    work.retire()
