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

from headrace.bench.prefetch.cases import UPDATES, Case, Rows, hashes_of
from headrace.bench.prefetch.sketch import Sketch
from headrace.bench.prefetch.traces import Trace
from headrace.blob.locations import Locations
from headrace.cache.policy import PolicyName
from headrace.clock import SYSTEM_CLOCK
from headrace.files.opened import DROP_BEHIND
from headrace.host.state.service import PartitionService
from headrace.prefetch.controller import HOT
from headrace.row.arrays import I64
from headrace.wire.contract import Ticket
from headrace.wire.state_reads import StateReads, together

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


def replay(
    trace: Trace, side: Side, share_bytes: int, threshold: int = HOT, case: Case = UPDATES
) -> Replayed:
    """Loads all keys, then replays the trace."""
    with tempfile.TemporaryDirectory(prefix="headrace-replay-") as folder, _cold():
        player = Player(Path(folder), case, share_bytes, side.cache, side.lookahead)
        try:
            return _replayed(player, trace, side, Sketch(threshold))
        finally:
            player.close()


def _replayed(player: Player, trace: Trace, side: Side, sketch: Sketch) -> Replayed:
    apply_ms, waited, spilled, all_reads = 0.0, 0.0, 0.0, []
    for start in range(0, trace.keys, LOAD_ROWS):
        player.load(np.arange(start, min(start + LOAD_ROWS, trace.keys)))
    for keys in trace.batch_keys():
        if side.lookahead == "stage":
            player.expect(sketch.passing(hashes_of(keys)))
        SYSTEM_CLOCK.sleep_ms(side.slack_ms)
        reads, spent_ms = player.batch(keys)
        all_reads.append(reads)
        apply_ms, waited, spilled = apply_ms + spent_ms, waited + reads.wait_ms, spilled + reads.spill_ms
    whole = together(all_reads)
    fields = {**vars(whole), "wait_ms": waited, "spill_ms": spilled}
    return Replayed(StateReads(**fields), apply_ms, whole.misses + whole.fetched)


class Player:
    """One partition of a host, batch after batch."""

    def __init__(
        self, folder: Path, case: Case, share_bytes: int, cache: PolicyName, lookahead: str
    ) -> None:
        self._service = PartitionService(1, Locations(folder / "local"), share_min=share_bytes, cache=cache)
        self._folder, self._case, self._lookahead, self._number = folder, case, lookahead, 0

    def load(self, keys: I64) -> None:
        """A batch that brings state of these keys."""
        self._run(keys, self._case.loaded, self._lookahead)

    def batch(self, keys: I64, lookahead: str | None = None) -> tuple[StateReads, float]:
        """One batch; its reads, and the time to apply its rows and to compute its results."""
        return self._run(keys, self._case.rows, self._lookahead if lookahead is None else lookahead)

    def _run(self, keys: I64, rows: Rows, lookahead: str) -> tuple[StateReads, float]:
        number, spec = self._number, self._case.spec
        self._number += 1
        place = ("start", "replay", spec, 0, number, number - 1 if number else None, number + 1)
        ticket = Ticket(*place, str(self._folder / "state"), 2, lookahead=lookahead)
        transaction = self._service.begin(ticket)
        for start in range(0, len(keys), SENT_ROWS):
            transaction.apply(rows(keys[start : start + SENT_ROWS]))
        for _ in transaction.finish([]):
            pass
        summary = transaction.commit()
        return summary.reads, summary.apply_ms + summary.finish_ms

    def expect(self, hashes: I64) -> None:
        """Hints for rows to come."""
        self._service.expect("replay", self._case.spec.name, 0, self._case.hints(hashes))

    @property
    def memory_bytes(self) -> int:
        """Of the partition's store."""
        store = self._service.partitions[0].store
        return 0 if store is None else store.memory_bytes

    def close(self) -> None:
        self._service.close()


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
