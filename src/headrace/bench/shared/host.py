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

import pyarrow as pa

from headrace.bench.shared.rows import batch_of, hashes_of, partitions_of
from headrace.clock import SYSTEM_CLOCK
from headrace.host.process.main import open_by_name
from headrace.plan.partitions.layouts import Layout, first_layout, origin_of
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
    log: str = ""  # the file to which every request is appended

    def open(self, memory_bytes: int, local: Path) -> StateService:
        return open_by_name(self.service)(memory_bytes, local)

    @property
    def service(self) -> str:
        """The state service, as a host's settings name it."""
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


class Host:
    """One start of the query, with one operator, in the newest of its layouts."""

    def __init__(
        self,
        spec: OperatorSpec,
        location: Path,
        service: StateService,
        start: str,
        layouts: Sequence[Layout] = (),
    ) -> None:
        self._spec, self._location, self._start = spec, str(location), start
        self._layouts = layouts or first_layout(spec.partitions)
        self.service = service
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

    def visit(self, number: int) -> None:
        """Opens all partitions for a batch, and leaves them as they are."""

        def task(partition: int) -> None:
            self.service.begin(self._ticket(number, partition)).abort()

        list(self._pool.map(task, range(self._spec.partitions)))

    def _ticket(self, number: int, partition: int) -> Ticket:
        base = number - 1 if number else None
        place = (self._start, QUERY, self._spec, partition, number, base, number + 1, self._location, 2)
        by_range, origin = self._layouts[-1].by_range, origin_of(self._layouts, base)
        return Ticket(*place, by_range=by_range, origin=origin)

    def _task(self, number: int, partition: int, rows: pa.RecordBatch) -> tuple[float, float]:
        """When the last result came, and how long the commit took."""
        transaction = self.service.begin(self._ticket(number, partition))
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

    def leave(self) -> None:
        """Ends its tasks; the service may have other operators."""
        self._pool.shutdown()
