"""A state host in this process, over storage to measure with: batches over all partitions at once.

Time is the host's: from the first `begin` of a batch to its last result, and of its commits.
Threads: one caller; a thread per partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from headrace.bench.shared.jobs import Job
from headrace.bench.shared.rows import hashes_of, partitions_of
from headrace.clock import SYSTEM_CLOCK
from headrace.host.process.main import open_by_name
from headrace.plan.partitions.layouts import Layout, origin_of
from headrace.plan.spec import OperatorSpec, output_schema
from headrace.row.arrays import I64, U64
from headrace.wire.contract import StateService, Ticket, Transaction

QUERY = "shared"
NEAR = "headrace.host.state.service:open_service"
FAR = "headrace.testing.faults.measured_blobs:open_measured"


@dataclass(frozen=True)
class Far:
    """The way to shared storage; None as latency: the directory is local."""

    latency_ms: float | None = None
    gbps: float = 5.0
    disk: str = ""
    fill: str = "ranges"
    log: str = ""  # the file to which every request is appended
    compactors: str = ""  # addresses, where the directory is local
    secret: str = ""

    def open(self, memory_bytes: int, local: Path) -> StateService:
        return open_by_name(self.service)(memory_bytes, local)

    @property
    def service(self) -> str:
        """The state service, as a host's settings name it."""
        if self.latency_ms is None and self.compactors:
            return f"{NEAR}?compactors={self.compactors}&compaction_secret={quote(self.secret)}"
        if self.latency_ms is None:
            return NEAR
        rest = [f"&{name}={value}" for name, value in (("disk", self.disk), ("log", self.log)) if value]
        return f"{FAR}?latency_ms={self.latency_ms}&gbps={self.gbps}&fill={self.fill}{''.join(rest)}"


@dataclass(frozen=True)
class Batch:
    """What one batch took, in milliseconds."""

    result_ms: float  # from `begin` to the last result
    commit_ms: float  # of the slowest partition
    rows: int
    results: int  # of the last operator


@dataclass(frozen=True)
class Ended:
    """One partition's part of a batch."""

    at_ms: float  # of the last result
    commit_ms: float
    results: int


class Host:
    """One start of a query, in the newest of its layouts."""

    def __init__(
        self, job: Job, location: Path, service: StateService, start: str, layouts: Sequence[Layout]
    ) -> None:
        self._job, self._location, self._start = job, str(location), start
        self._layouts, self.service = layouts, service
        self._partitions = job.specs[0].partitions
        self._pool = ThreadPoolExecutor(self._partitions, "task")

    def batch(self, number: int, keys: I64) -> Batch:
        """Runs one batch with these keys."""
        keys = self._job.distinct(keys)
        hashes = hashes_of(keys)
        parts = partitions_of(hashes, self._partitions)
        rows = [(keys[parts == p], hashes[parts == p]) for p in range(self._partitions)]
        begun = SYSTEM_CLOCK.monotonic_ms()
        run = partial(self._task, number)
        ended = list(self._pool.map(run, range(len(rows)), rows))
        result_ms = max(each.at_ms for each in ended) - begun
        commit_ms = max(each.commit_ms for each in ended)
        return Batch(result_ms, commit_ms, len(keys), sum(each.results for each in ended))

    def visit(self, number: int) -> None:
        """Opens all partitions for a batch, and leaves them as they are."""

        def task(partition: int) -> None:
            for spec in self._job.specs:
                self.service.begin(self._ticket(spec, number, partition)).abort()

        list(self._pool.map(task, range(self._partitions)))

    def _ticket(self, spec: OperatorSpec, number: int, partition: int) -> Ticket:
        base = number - 1 if number else None
        place = (self._start, QUERY, spec, partition, number, base, number + 1, self._location, 2)
        by_range, origin = self._layouts[-1].by_range, origin_of(self._layouts, base)
        return Ticket(*place, by_range=by_range, origin=origin)

    def _task(self, number: int, partition: int, keyed: tuple[I64, U64]) -> Ended:
        """Runs all operators, each over the results of the one before it."""
        transactions: list[Transaction] = []
        results = pa.table({})
        try:
            for place, spec in enumerate(self._job.specs):
                rows = self._job.rows(place, number, *keyed, results)
                transactions.append(self.service.begin(self._ticket(spec, number, partition)))
                transactions[-1].apply(rows)
                batches = list(transactions[-1].finish(self._job.seen_ms(number)))
                results = pa.Table.from_batches(batches, output_schema(spec))
            result = SYSTEM_CLOCK.monotonic_ms()
            for transaction in transactions:
                transaction.commit()
        except BaseException:
            for transaction in transactions:
                transaction.abort()
            raise
        return Ended(result, SYSTEM_CLOCK.monotonic_ms() - result, results.num_rows)

    def close(self) -> None:
        self._pool.shutdown()
        self.service.close()
