"""A trace through the state host's partitions, without Spark: all sides get the same rows at one pace.

Files are cold: no page stays in the system's cache after its read. Hints reach the host `slack_ms` before
the rows, as from the stage before the shuffle; the other sides wait as long, without hints.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.bench.prefetch.traces import Trace
from headrace.cache.policy import PolicyName
from headrace.clock import SYSTEM_CLOCK
from headrace.files.opened import DROP_BEHIND
from headrace.host.state.service import PartitionService
from headrace.plan.spec import HASH, Accumulator, Field, Fold, OperatorSpec
from headrace.row.arrays import I64
from headrace.wire.contract import Ticket
from headrace.wire.state_reads import StateReads, together

SPEC = OperatorSpec(
    name="replay",
    keys=(Field("k0", "int64", "key"),),
    inputs=(Field("v0", "int64", "amount"),),
    work=Fold((Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64"))),
    window=None,
    emit="changes",
    timed=False,
    delays_ms=(),
    partitions=1,
)
SENT_ROWS = 10_000
LOAD_ROWS = 50_000


@dataclass(frozen=True)
class Side:
    """A cache policy, and where hints come from."""

    name: str
    cache: PolicyName
    lookahead: str = ""
    slack_ms: float = 100.0


LRU = Side("lru", "lru")
CLOCK = Side("clock", "clock")
ASYNC = Side("async", "lru", "door")
PREFETCH = Side("prefetch", "timestamp", "stage")
PREFETCH_LRU = Side("prefetch_lru", "lru", "stage")
SIDES = (LRU, CLOCK, ASYNC, PREFETCH_LRU, PREFETCH)


@dataclass(frozen=True)
class Replayed:
    """What one side measured."""

    reads: StateReads
    apply_ms: float
    keys_read: int  # on demand and ahead

    @property
    def p999_ms(self) -> float:
        return self.reads.wait_quantile_ms(0.999)


def replay(trace: Trace, side: Side, share_bytes: int) -> Replayed:
    """Loads all keys, then replays the trace."""
    with tempfile.TemporaryDirectory(prefix="headrace-replay-") as folder, _cold():
        service = PartitionService(1, share_min=share_bytes, cache=side.cache)
        try:
            return _replayed(service, Path(folder), trace, side)
        finally:
            service.close()


def _replayed(service: PartitionService, folder: Path, trace: Trace, side: Side) -> Replayed:
    number, apply_ms, waited, all_reads = 0, 0.0, 0.0, []
    for start in range(0, trace.keys, LOAD_ROWS):
        _batch(service, folder, number, np.arange(start, min(start + LOAD_ROWS, trace.keys)), side)
        number += 1
    for keys in trace.batch_keys():
        if side.lookahead == "stage":
            hashes = pa.array(_hashes(keys))
            service.expect("replay", SPEC.name, 0, pa.RecordBatch.from_arrays([hashes], [HASH]))
        SYSTEM_CLOCK.sleep_ms(side.slack_ms)
        reads, spent_ms = _batch(service, folder, number, keys, side)
        all_reads.append(reads)
        apply_ms, waited, number = apply_ms + spent_ms, waited + reads.wait_ms, number + 1
    whole = together(all_reads)
    fields = {**vars(whole), "wait_ms": waited}
    return Replayed(StateReads(**fields), apply_ms, whole.misses + whole.fetched)


def _batch(
    service: PartitionService, folder: Path, number: int, keys: I64, side: Side
) -> tuple[StateReads, float]:
    place = ("start", "replay", SPEC, 0, number, number - 1 if number else None, number + 1)
    transaction = service.begin(Ticket(*place, str(folder), 2, lookahead=side.lookahead))
    for start in range(0, len(keys), SENT_ROWS):
        transaction.apply(_rows(keys[start : start + SENT_ROWS]))
    for _ in transaction.finish([]):
        pass
    summary = transaction.commit()
    return summary.reads, summary.apply_ms


def _rows(keys: I64) -> pa.RecordBatch:
    columns = [pa.array(_hashes(keys)), pa.array(keys), pa.array(np.ones(len(keys), np.int64))]
    return pa.RecordBatch.from_arrays(columns, [HASH, "k0", "v0"])


def _hashes(keys: I64) -> I64:
    """Hashes of keys: those of a partition are spread evenly."""
    mixed = (keys.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(29))).view(np.int64)


@contextmanager
def _cold() -> Iterator[None]:
    before = os.environ.get(DROP_BEHIND)
    os.environ[DROP_BEHIND] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[DROP_BEHIND]
        else:
            os.environ[DROP_BEHIND] = before
