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

from headrace.bench.shared.rows import batch_of, hashes_of, partitions_of
from headrace.clock import SYSTEM_CLOCK
from headrace.host.process.main import open_by_name
from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import I64
from headrace.wire.contract import StateService, Ticket

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
        disk = f"&disk={self.disk}" if self.disk else ""
        return f"{FAR}?latency_ms={self.latency_ms}&gbps={self.gbps}&fill={self.fill}{disk}"


@dataclass(frozen=True)
class Batch:
    """What one batch took, in milliseconds."""

    result_ms: float  # from `begin` to the last result
    commit_ms: float  # of the slowest partition
    rows: int


class Host:
    """One start of the query."""

    def __init__(
        self, spec: OperatorSpec, location: Path, local: Path, memory_bytes: int, far: Far, start: str
    ) -> None:
        self._spec, self._location, self._start = spec, str(location), start
        self.service = far.open(memory_bytes, local)
        self._pool = ThreadPoolExecutor(spec.partitions, "task")

    def batch(self, number: int, keys: I64) -> Batch:
        """Runs one batch with these keys."""
        hashes = hashes_of(keys)
        parts = partitions_of(hashes, self._spec.partitions)
        rows = [
            batch_of(self._spec, keys[parts == p], hashes[parts == p]) for p in range(self._spec.partitions)
        ]
        begun = SYSTEM_CLOCK.monotonic_ms()
        run = partial(self._task, number)
        ended: Sequence[tuple[float, float]] = list(self._pool.map(run, range(len(rows)), rows))
        result_ms = max(at for at, _ in ended) - begun
        return Batch(result_ms, max(commit for _, commit in ended), len(keys))

    def _task(self, number: int, partition: int, rows: pa.RecordBatch) -> tuple[float, float]:
        """When the last result came, and how long the commit took."""
        base = number - 1 if number else None
        ticket = Ticket(
            self._start, QUERY, self._spec, partition, number, base, number + 1, self._location, 2
        )
        transaction = self.service.begin(ticket)
        try:
            transaction.apply(rows)
            for _ in transaction.finish([]):
                pass
            result = SYSTEM_CLOCK.monotonic_ms()
            transaction.commit()
        except BaseException:
            transaction.abort()
            raise
        return result, SYSTEM_CLOCK.monotonic_ms() - result

    def close(self) -> None:
        self._pool.shutdown()
        self.service.close()
