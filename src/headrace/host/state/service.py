"""All partitions of a host: finds or opens the partition of a ticket.

Threads: any; each partition has its own lock. No storage request runs under the lock of `status`, so that
the heartbeat goes on while storage is unavailable.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.blob.base import Blobs
from headrace.blob.copies import FOLDER
from headrace.blob.locations import Locations, Wrap
from headrace.cache.policy import POLICIES, PolicyName, policy_of
from headrace.checkpoint.home import PartitionHome
from headrace.checkpoint.log import LocalLog
from headrace.checkpoint.pipeline import CommitPipeline, Crew
from headrace.checkpoint.runs import claim_run
from headrace.checkpoint.steps import Moment
from headrace.files.fetch import Fetcher
from headrace.files.keeper import CacheKeeper
from headrace.files.ranges import REQUEST_BYTES
from headrace.files.rollup import RollUp
from headrace.files.space import PartialSpace
from headrace.host.compaction.remote import RemoteCompaction
from headrace.host.state.partition import Partition
from headrace.host.state.run_guard import RunGuard
from headrace.host.state.upkeep import Upkeep
from headrace.plan.options import default_local
from headrace.plan.times import TIMES
from headrace.plan.values.disk import DISK_SHARE, disk_bytes
from headrace.store.base.budget import SHARE_MIN, MemoryBudget
from headrace.wire.contract import Ticket, Transaction

RANGES_BYTES = 1 << 40  # of disk, where no limit was given
RANGES_PART = 8  # without a disk cache, ranges take this part of the memory limit
FETCHED_PART = 8  # bytes under way take at most this part of the memory limit


class PartitionService:
    """The `StateService` of a real host."""

    def __init__(
        self,
        memory_bytes: int,
        locations: Locations | None = None,
        crew: Crew | None = None,
        upkeep: Upkeep | None = None,
        *,
        fsync: bool = False,
        share_min: int = SHARE_MIN,
        cache: PolicyName = "timestamp",
        space: PartialSpace | None = None,
        keeper: CacheKeeper | None = None,
        remote: RemoteCompaction | None = None,
    ) -> None:
        self._remote = remote
        self._fsync = fsync  # of the local log
        self._policy = policy_of(cache)
        self._locations = locations or Locations(Path(default_local()))
        self._budget = MemoryBudget(memory_bytes, share_min)
        self._space = space or PartialSpace(self._locations.local, RANGES_BYTES, Fetcher())
        self._keeper = keeper
        self._upkeep = upkeep or Upkeep()
        self._crew = crew or Crew()
        self._space.probe = lambda moment: self._crew.probe(Moment(moment))
        self._partitions: dict[tuple[str, str, str, str], Partition] = {}  # the last is the folder
        self._runs: dict[tuple[str, str, str], RunGuard] = {}
        self._rollups: dict[tuple[str, str], RollUp] = {}
        self._beginning: Counter[Partition] = Counter()  # calls of `begin` under way
        self._mutex = threading.Lock()
        self._claiming = threading.Lock()
        self._ended: set[str] = set()  # queries that have ended and have partitions here
        self._closing = threading.Event()
        self._watch: threading.Thread | None = None

    def begin(self, ticket: Ticket) -> Transaction:
        blobs = self._locations.open(ticket.location, create=ticket.base is None)
        with self._mutex:
            self._rollup_of(ticket, blobs)  # is read while the run is claimed
        guard = self._guard_of(ticket, blobs)
        with self._mutex:
            self._ended.discard(ticket.query)
            partition = self._partition(ticket, blobs)
            self._beginning[partition] += 1
        try:
            transaction = partition.begin(ticket, guard.run)
            transaction.guard = guard
            return transaction
        finally:
            with self._mutex:
                self._beginning[partition] -= 1
                self._beginning += Counter()  # drops zeros

    def expect(self, query: str, operator: str, partition: int, hints: pa.RecordBatch) -> bool:
        with self._mutex:
            theirs = [one for key, one in self._partitions.items() if key[1:3] == (query, operator)]
        mine = [one for one in theirs if one.number == partition]
        for one in mine:
            one.expect(hints)
        return bool(mine)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions of this host, without those that were dropped while idle."""
        with self._mutex:
            return list(self._partitions.values())

    @property
    def is_locked(self) -> bool:
        """Whether a thread is at work under a lock that other jobs need; for simulations."""
        locked = any(partition.is_locked for partition in self._partitions.values())
        return locked or self._claiming.locked() or any(guard.is_locked for guard in self._runs.values())

    def _guard_of(self, ticket: Ticket, blobs: Blobs) -> RunGuard:
        key = (ticket.location, ticket.query, ticket.start)
        with self._claiming:
            if key not in self._runs:
                has_state = ticket.base is not None
                run = claim_run(
                    blobs, ticket.query, ticket.start, has_state=has_state, clock=self._crew.clock
                )
                self._runs[key] = RunGuard(blobs, ticket.query, run, self._crew)
            return self._runs[key]

    def _partition(self, ticket: Ticket, blobs: Blobs) -> Partition:
        prefix = ticket.prefix
        key = (ticket.location, ticket.query, ticket.operator.name, prefix)
        if key not in self._partitions:
            self._rest(TIMES.partition_idle_s)
            log = LocalLog.of(self._locations.local, ticket.location, prefix, fsync=self._fsync)
            home = PartitionHome.of(
                blobs,
                prefix,
                self._crew.clock,
                log,
                space=self._space,
                rollup=self._rollup_of(ticket, blobs),
            )
            pipeline = CommitPipeline(self._crew, prefix, lambda: bool(self._locations.waits_ms()))
            place = (home, self._budget, self._upkeep, self._crew, pipeline, self._policy)
            self._partitions[key] = Partition(*place, ticket.partition, self._remote)
            self._watch_commits()
        return self._partitions[key]

    def _rollup_of(self, ticket: Ticket, blobs: Blobs) -> RollUp | None:
        """What hosts have written about the query's files; nothing where files are in place."""
        if blobs.in_place:
            return None
        key = (ticket.location, ticket.query)
        if key not in self._rollups:
            together = self._space.fetcher.together
            rollup = RollUp(blobs, ticket.query, self._crew.clock, together=together)
            if ticket.base is not None:
                rollup.reading = self._space.fetcher.beside(rollup.load)
            self._rollups[key] = rollup
        return self._rollups[key]

    def _watch_commits(self) -> None:
        """Starts the thread that looks for stalled commits of all partitions."""
        if self._watch is None and self._crew.watched:
            self._watch = threading.Thread(target=self._look, name="commit-watch", daemon=True)
            self._watch.start()

    def _look(self) -> None:
        while not self._crew.clock.wait(self._closing, TIMES.commit_watch_s * 1000):
            self._sweep()
            for partition in self.partitions:
                partition.look()
            for rollup in list(self._rollups.values()):
                self._space.fetcher.beside(rollup.write)

    def _rest(self, idle_s: float) -> None:
        """Frees the memory of idle partitions: a query may end without a message."""
        for partition in self._partitions.values():
            partition.rest(idle_s)

    def status(self) -> dict[str, Any]:
        with self._mutex:
            partitions = dict(self._partitions)
        return {
            "memory_limit_bytes": self._budget.limit_bytes,
            "storage_waits_ms": self._locations.waits_ms(),
            "partitions": [
                {"query": query, "operator": operator, **partition.status()}
                for (_, query, operator, _), partition in partitions.items()
            ],
        }

    def ended(self, queries: Collection[str]) -> None:
        with self._mutex:
            self._ended.update(queries)
            theirs = [partition for key, partition in self._partitions.items() if key[1] in queries]
            rollups = [self._rollups.pop(key) for key in list(self._rollups) if key[1] in queries]
        for rollup in rollups:
            self._space.fetcher.beside(partial(rollup.write, now=True))
        for partition in theirs:
            partition.rest(0.0)
        self._sweep()

    def _sweep(self) -> None:
        """Drops idle partitions, and with the last one of an ended query its guards and log folders."""
        with self._mutex:
            before = self._partitions
            self._drop_resting()
            dropped = [
                before[key] for key in before.keys() - self._partitions.keys() if key[1] in self._ended
            ]
            over = self._ended - {key[1] for key in self._partitions}
            self._ended -= over
        for partition in dropped:
            partition.close_log()
        with self._claiming:
            self._runs = {key: guard for key, guard in self._runs.items() if key[1] not in over}

    @property
    def starts(self) -> int:
        """The starts of queries that this host has worked for, without those that ended."""
        return len(self._runs)

    def _drop_resting(self) -> None:
        """Drops idle partitions: an application may start queries without end."""
        self._partitions = {
            key: partition
            for key, partition in self._partitions.items()
            if partition in self._beginning or not partition.is_at_rest
        }

    def close(self) -> None:
        self._upkeep.close()
        self._crew.close()
        self._closing.set()
        for rollup in self._rollups.values():
            rollup.write(now=True)
        self._space.fetcher.close()
        with self._mutex:
            self._rest(0.0)  # also removes staged files that no commit named


def open_service(
    memory_bytes: int,
    local: Path,
    fsync: str = "false",
    cache: str = "timestamp",
    disk: str = "",
    fill: str = "ranges",
    compactors: str = "",
    compaction_secret: str = "",
    wrap: Wrap | None = None,
    crew: Crew | None = None,
) -> PartitionService:
    """The state behind a host's server; `local` is a directory on the machine's own disk.

    `disk` is `spark.headrace.cache.disk`; with it, directories are read through local copies too. `fill` is
    `spark.headrace.cache.fill`. `compactors` are addresses with commas between, and `compaction_secret` is
    the file with their secret.
    """
    policy = next(name for name in POLICIES if name == cache)
    fetcher = Fetcher(in_flight_bytes=max(memory_bytes // FETCHED_PART, REQUEST_BYTES))
    limit = disk_bytes(disk or DISK_SHARE, free_bytes(local))
    space = PartialSpace(local if limit else None, limit or memory_bytes // RANGES_PART, fetcher)
    keeper = CacheKeeper(local, limit, space)
    space.is_worth_loading = keeper.used
    locations = Locations(
        local,
        wrap=wrap,
        copies_directories=bool(disk),
        admits=keeper.admits,
        whole=fill == "whole",
    )
    remote = RemoteCompaction.to(compactors.split(","), Path(compaction_secret)) if compactors else None
    return PartitionService(
        memory_bytes,
        locations,
        crew,
        fsync=fsync == "true",
        cache=policy,
        space=space,
        keeper=keeper,
        remote=remote,
    )


def free_bytes(local: Path) -> int:
    """The disk that is free, or that copies take now."""
    existing = next(path for path in (local, *local.absolute().parents) if path.exists())
    copies = sum(file.stat().st_size for file in (local / FOLDER).rglob("*") if file.is_file())
    return shutil.disk_usage(existing).free + copies
