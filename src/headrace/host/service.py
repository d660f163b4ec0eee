"""All partitions that a host holds: finds or opens the one a ticket names.

Threads: any; each partition guards itself. Storage is never asked under the lock that `status` takes, so
that a host whose storage is away still has a pulse.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.pipeline import CommitPipeline, Crew
from headrace.checkpoint.publish import ManifestPublisher
from headrace.checkpoint.runs import claim_run
from headrace.format.names import partition_prefix
from headrace.host.contract import Ticket, Transaction
from headrace.host.home import PartitionHome
from headrace.host.partition import Partition
from headrace.host.upkeep import Upkeep
from headrace.options import default_local
from headrace.store.budget import MemoryBudget

WATCH_S = 1.0  # between two looks at commits that may stand still
IDLE_S = 60.0  # a partition that nobody used for this long makes room for a new one


class PartitionService:
    """The `StateService` of a real host."""

    def __init__(
        self,
        memory_bytes: int,
        locations: Locations | None = None,
        crew: Crew | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._locations = locations or Locations(Path(default_local()))
        self._budget = MemoryBudget(memory_bytes)
        self._upkeep = upkeep or Upkeep()
        self._crew = crew or Crew()
        self._partitions: dict[tuple[str, str, str, int], Partition] = {}
        self._runs: dict[tuple[str, str, str], int] = {}
        self._mutex = threading.Lock()
        self._claiming = threading.Lock()
        self._closing = threading.Event()
        self._watch: threading.Thread | None = None

    def begin(self, ticket: Ticket) -> Transaction:
        blobs = self._locations.open(ticket.location, create=ticket.base is None)
        run = self._run_of(ticket, blobs)
        with self._mutex:
            partition = self._partition(ticket, blobs)
        return partition.begin(ticket, run)

    def _run_of(self, ticket: Ticket, blobs: Blobs) -> int:
        key = (ticket.location, ticket.query, ticket.start)
        with self._claiming:
            if key not in self._runs:
                self._runs[key] = claim_run(blobs, ticket.query, ticket.start, clock=self._crew.clock)
            return self._runs[key]

    def _partition(self, ticket: Ticket, blobs: Blobs) -> Partition:
        key = (ticket.location, ticket.query, ticket.operator.name, ticket.partition)
        if key not in self._partitions:
            self._rest(IDLE_S)
            prefix = partition_prefix(ticket.query, ticket.operator.name, ticket.partition)
            publisher = ManifestPublisher(blobs, prefix, self._crew.clock)
            log = LocalLog.of(self._locations.local, ticket.location, prefix)
            home = PartitionHome(blobs, prefix, publisher, itertools.count(), log)
            pipeline = CommitPipeline(self._crew, prefix, lambda: bool(self._locations.waits_ms()))
            self._partitions[key] = Partition(home, self._budget, self._upkeep, self._crew, pipeline)
            self._watch_commits()
        return self._partitions[key]

    def _watch_commits(self) -> None:
        """The heartbeat of commits: one thread for all partitions."""
        if self._watch is None and self._crew.watched:
            self._watch = threading.Thread(target=self._look, name="commit-watch", daemon=True)
            self._watch.start()

    def _look(self) -> None:
        while not self._closing.wait(WATCH_S):
            with self._mutex:
                partitions = list(self._partitions.values())
            for partition in partitions:
                partition.pipeline.look()

    def _rest(self, idle_s: float) -> None:
        """Queries end without a word: what they left in memory must not make the others' share small."""
        for partition in self._partitions.values():
            partition.rest(idle_s)

    def status(self) -> dict[str, Any]:
        with self._mutex:
            partitions = dict(self._partitions)
        return {
            "memory_limit_bytes": self._budget.limit_bytes,
            "storage_waits_ms": self._locations.waits_ms(),
            "partitions": [
                {"query": query, "operator": operator, "partition": number, **partition.status()}
                for (_, query, operator, number), partition in partitions.items()
            ],
        }

    def ended(self, queries: Collection[str]) -> None:
        with self._mutex:
            theirs = [partition for key, partition in self._partitions.items() if key[1] in queries]
        for partition in theirs:
            partition.rest(0.0)

    def close(self) -> None:
        self._upkeep.close()
        self._crew.close()
        self._closing.set()
        with self._mutex:
            self._rest(0.0)  # compactions that no commit took in are removed


def open_service(memory_bytes: int, local: Path) -> PartitionService:
    """The state behind a host's server; `local` is a directory on the machine's own disk."""
    return PartitionService(memory_bytes, Locations(local))
