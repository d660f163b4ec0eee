"""Counters of an application: sums over all batches since it began. Pure over records.

A batch is counted once, when it is first recorded; what its commit did behind the next batch is added when
that is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.coordinator.progress import BatchProgress
from headrace.monitor.picture.phases import Split, hidden_ms, waited_ms
from headrace.monitor.records import Record

PREFETCH = ("prefetch_hits", "prefetch_misses", "prefetched", "prefetch_in_vain")
COUNTED = ("rows_in", "rows_out", "late_rows", "written_bytes", *PREFETCH)
READ = ("looked_up", "hits", "blocks", "bytes")  # of `BatchProgress.reads`
PENDING = 8  # batches whose hidden part may still come


@dataclass
class OperatorTotals:
    """The counters of one operator."""

    batches: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    reads: dict[str, int] = field(default_factory=lambda: dict.fromkeys(READ, 0))
    state_wait_s: float = 0.0
    waited_s: Split = field(default_factory=dict)
    hidden_s: Split = field(default_factory=dict)
    _hidden_of: dict[int, Split] = field(default_factory=dict)

    def take(self, batch: BatchProgress) -> None:
        if batch.batch not in self._hidden_of:
            self.batches += 1
            self.seconds += batch.seconds
            for name in COUNTED:
                self.counts[name] += getattr(batch, name)
            for name in READ:
                self.reads[name] += getattr(batch.reads, name)
            self.state_wait_s += batch.reads.wait_ms / 1000
            _add(self.waited_s, waited_ms(batch))
        before, now = self._hidden_of.get(batch.batch, {}), hidden_ms(batch)
        _add(self.hidden_s, {phase: ms - before.get(phase, 0.0) for phase, ms in now.items()})
        self._hidden_of[batch.batch] = now
        for old in sorted(self._hidden_of)[:-PENDING]:
            del self._hidden_of[old]


class Totals:
    """The counters of an application."""

    def __init__(self) -> None:
        self.operators: dict[tuple[str, str], OperatorTotals] = {}
        self.events: dict[str, int] = {"error": 0, "warning": 0}

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            if record["kind"] == "batch":
                key = (record["query"], record["operator"])
                totals = self.operators.setdefault(key, OperatorTotals())
                totals.take(BatchProgress.of(record["progress"]))
            elif record["kind"] == "event" and record["level"] in self.events:
                self.events[record["level"]] += 1


def _add(total_s: Split, split_ms: Split) -> None:
    for phase, ms in split_ms.items():
        total_s[phase] = total_s.get(phase, 0.0) + max(0.0, ms) / 1000
