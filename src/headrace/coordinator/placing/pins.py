"""Partitions whose newest version may be in a local log only: they stay on the disk that has the log.

Invariants: a version that was acknowledged from a log counts as unpublished until storage has its manifest.
Threads: any; one lock, which is not held while storage is read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from headrace.blob.base import Blobs
from headrace.errors import HeadraceError, StateMissing
from headrace.format.names import manifests_of
from headrace.wire.contract import Summary

log = logging.getLogger("headrace.coordinator")

PartitionKey = tuple[str, str, int]  # query, operator, partition


@dataclass(frozen=True)
class Home:
    """Where the state of a partition is."""

    location: str
    prefix: str


@dataclass(frozen=True)
class Logged:
    """A version that its task acknowledged before storage had it."""

    version: int
    home: Home


class Pins:
    """The logged versions of all partitions of an application."""

    def __init__(self, blobs_at: Callable[[str], Blobs]) -> None:
        self._blobs_at = blobs_at
        self._lock = threading.Lock()
        self._logged: dict[PartitionKey, Logged] = {}
        self._warned: set[str] = set()  # machines

    def committed(self, query: str, operator: str, home: Home, summary: Summary) -> None:
        """Records the newest version of a partition."""
        key = (query, operator, summary.partition)
        with self._lock:
            if summary.commit == "sync":
                self._logged.pop(key, None)
            else:
                self._logged[key] = Logged(summary.version, home)

    def published(self, key: PartitionKey, version: int) -> None:
        """The partition's owner has published a version: storage need not be read for it."""
        with self._lock:
            logged = self._logged.get(key)
            if logged is not None and logged.version <= version:
                del self._logged[key]

    def warn_of_memory(self, machine: str) -> None:
        """Logs once per machine, if versions are logged, that its log does not survive a restart."""
        with self._lock:
            if machine in self._warned or not self._logged:
                return
            self._warned.add(machine)
        log.warning(
            "spark.headrace.state.local of %s is in memory: a restart of the machine loses its log; "
            "set it to a folder on a disk",
            machine,
        )

    def holds(self, key: PartitionKey, base: int | None) -> bool:
        """Whether storage lacks the version that a batch of the partition starts from."""
        with self._lock:
            logged = self._logged.get(key)
        if logged is None or logged.version != base:
            return False
        return not self._is_published(key, logged)

    def logged(self, queries: Collection[str] | None = None) -> dict[PartitionKey, Logged]:
        """The newest logged version of the partitions, of these queries or of all."""
        with self._lock:
            logged = dict(self._logged)
        return {key: entry for key, entry in logged.items() if queries is None or key[0] in queries}

    def lacks(self, key: PartitionKey, logged: Logged) -> bool:
        """Whether storage lacks a version; a newer one in the log proves that storage has it."""
        with self._lock:
            if self._logged.get(key) != logged:
                return False
        return not self._is_published(key, logged)

    def drop(self, queries: Iterable[str]) -> None:
        """Drops the versions of queries that ended long ago."""
        dropped = set(queries)
        with self._lock:
            self._logged = {key: entry for key, entry in self._logged.items() if key[0] not in dropped}

    def _is_published(self, key: PartitionKey, logged: Logged) -> bool:
        home = logged.home
        try:
            published = bool(self._blobs_at(home.location).list(manifests_of(home.prefix, logged.version)))
        except HeadraceError as error:  # the next look reads it again
            log.info("cannot see whether version %d is published: %s", logged.version, error)
            return False
        if published:
            with self._lock:
                if self._logged.get(key) == logged:
                    del self._logged[key]
        return published


def out_of_reach(key: PartitionKey, machine: str) -> StateMissing:
    """The error for a version that is on a disk without a host."""
    _, operator, number = key
    return StateMissing(
        f"the newest state of partition {number} of {operator} is only in the local log of {machine}, "
        "and no state host can be started on that machine's disk",
        hint="bring the machine back and start the query again; if its disk is lost, start the query with "
        "hr.start, which replays the last batch",
    )
