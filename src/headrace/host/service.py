"""All partitions that a host holds: finds or opens the one a ticket names.

Threads: any; each partition guards itself. Storage is never asked under the lock that `status` takes, so
that a host whose storage is away still has a pulse.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.checkpoint.publish import ManifestPublisher
from headrace.checkpoint.runs import claim_run
from headrace.clock import SystemClock
from headrace.format.names import partition_prefix
from headrace.host.contract import Ticket, Transaction
from headrace.host.home import PartitionHome
from headrace.host.partition import Partition
from headrace.host.upkeep import Upkeep
from headrace.options import default_local
from headrace.store.budget import MemoryBudget

SEALERS = 4  # segments written at a time
IDLE_S = 60.0  # a partition that nobody used for this long makes room for a new one


class PartitionService:
    """The `StateService` of a real host."""

    def __init__(self, memory_bytes: int, locations: Locations | None = None) -> None:
        self._locations = locations or Locations(Path(default_local()))
        self._budget = MemoryBudget(memory_bytes)
        self._upkeep = Upkeep()
        self._sealers = ThreadPoolExecutor(SEALERS, thread_name_prefix="seal")
        self._partitions: dict[tuple[str, str, str, int], Partition] = {}
        self._runs: dict[tuple[str, str, str], int] = {}
        self._mutex = threading.Lock()
        self._claiming = threading.Lock()

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
                self._runs[key] = claim_run(blobs, ticket.query, ticket.start)
            return self._runs[key]

    def _partition(self, ticket: Ticket, blobs: Blobs) -> Partition:
        key = (ticket.location, ticket.query, ticket.operator.name, ticket.partition)
        if key not in self._partitions:
            self._rest(IDLE_S)
            prefix = partition_prefix(ticket.query, ticket.operator.name, ticket.partition)
            publisher = ManifestPublisher(blobs, prefix, SystemClock())
            home = PartitionHome(blobs, prefix, publisher, itertools.count())
            self._partitions[key] = Partition(home, self._budget, self._upkeep, self._sealers)
        return self._partitions[key]

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

    def close(self) -> None:
        self._upkeep.close()
        self._sealers.shutdown(wait=True)
        with self._mutex:
            self._rest(0.0)  # compactions that no commit took in are removed


def open_service(memory_bytes: int, local: Path) -> PartitionService:
    """The state behind a host's server; `local` is a directory on the machine's own disk."""
    return PartitionService(memory_bytes, Locations(local))
