"""How a batch came by state that was not in memory: reads on demand, reads ahead of rows, and the waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from headrace.store.base.waits import merged, quantile_ms

Pairs = tuple[tuple[int, int], ...]
PAIRS = ("waits", "slacks", "fetches")
SUMS = (
    *("looked_up", "hits", "blocks", "bytes"),
    *("cached_bytes", "fetched_bytes", "requests", "evicted_bytes"),
    *("hints", "filtered", "late", "dropped", "failed", "fetched", "in_vain"),
)


@dataclass(frozen=True)
class StateReads:
    """The reads of one batch in one partition, or of all partitions together."""

    wait_ms: float = 0.0  # in which rows waited for state; of the slowest partition
    looked_up: int = 0  # keys that memory did not have
    hits: int = 0  # of these, keys that were read ahead of their rows
    blocks: int = 0  # reads on demand
    bytes: int = 0  # of these reads
    waits: Pairs = ()  # rows by their wait: bucket and rows (`store.base.waits`)
    cached_bytes: int = 0  # of files that are elsewhere, present on the disk
    fetched_bytes: int = 0  # of files that are elsewhere, from shared storage; since the last commit
    requests: int = 0  # for these bytes
    fetch_ms: float = 0.0  # in which readers waited for these requests, added up
    evicted_bytes: int = 0  # that left the disk cache for lack of room
    spill_ms: float = 0.0  # in which rows waited for changed rows to leave memory; of the slowest partition
    lookahead: str = ""  # where hints came from; empty: there were none
    hints: int = 0  # hashes that were expected
    filtered: int = 0  # of these: in memory, staged or on their way already
    late: int = 0  # of closed windows
    dropped: int = 0  # without room, or too late to be read
    failed: int = 0  # their read failed
    fetched: int = 0
    in_vain: int = 0  # fetched, and never used
    hidden_ms: float = 0.0  # time of reads that no row waited for
    slacks: Pairs = ()  # hashes by the time from their hint to their use
    fetches: Pairs = ()  # hashes by the time that their read took

    @property
    def misses(self) -> int:
        """Keys that rows had to wait for."""
        return self.looked_up - self.hits

    @property
    def hit_ratio(self) -> float | None:
        """The part of the keys looked up that was read ahead; None where none was looked up."""
        return self.hits / self.looked_up if self.looked_up else None

    def wait_quantile_ms(self, quantile: float) -> float:
        """The wait for state that this part of the rows does not exceed."""
        return quantile_ms(self.waits, quantile)

    @property
    def slack_ms(self) -> float:
        """The time from hint to use that 99 of 100 hashes have at least."""
        return quantile_ms(self.slacks, 0.01)

    @property
    def slowest_fetch_ms(self) -> float:
        """The time of reading that 99 of 100 hashes do not exceed."""
        return quantile_ms(self.fetches, 0.99)

    @classmethod
    def of(cls, values: dict[str, Any] | None) -> StateReads:
        """From what JSON made of it; names unknown to this release are left out."""
        known = {field.name for field in fields(cls)}
        mine = {name: value for name, value in (values or {}).items() if name in known}
        for name in PAIRS:
            mine[name] = tuple((int(bucket), int(rows)) for bucket, rows in mine.get(name, ()))
        return cls(**mine)


NO_READS = StateReads()


def together(parts: Sequence[StateReads]) -> StateReads:
    """The reads of several partitions."""
    sums = {name: sum(getattr(part, name) for part in parts) for name in SUMS}
    pairs = {name: merged([getattr(part, name) for part in parts]) for name in PAIRS}
    values: dict[str, Any] = {**sums, **pairs}
    return StateReads(
        wait_ms=max((part.wait_ms for part in parts), default=0.0),
        spill_ms=max((part.spill_ms for part in parts), default=0.0),
        fetch_ms=round(sum(part.fetch_ms for part in parts), 3),
        hidden_ms=round(sum(part.hidden_ms for part in parts), 3),
        lookahead=next((part.lookahead for part in parts if part.lookahead), ""),
        **values,
    )
