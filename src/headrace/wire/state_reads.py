"""How a batch came by state that was not in memory: reads on demand, reads ahead of rows, and the waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from headrace.store.base.waits import merged, quantile_ms

Pairs = tuple[tuple[int, int], ...]


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
    evicted_bytes: int = 0  # that left the disk cache for want of room

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

    @classmethod
    def of(cls, values: dict[str, Any] | None) -> StateReads:
        """From what JSON made of it; names that this release does not know are left out."""
        known = {field.name for field in fields(cls)}
        mine = {name: value for name, value in (values or {}).items() if name in known}
        pairs = tuple((int(bucket), int(rows)) for bucket, rows in mine.pop("waits", ()))
        return cls(**mine, waits=pairs)


NO_READS = StateReads()


def together(parts: Sequence[StateReads]) -> StateReads:
    """The reads of several partitions."""
    return StateReads(
        wait_ms=max((part.wait_ms for part in parts), default=0.0),
        looked_up=sum(part.looked_up for part in parts),
        hits=sum(part.hits for part in parts),
        blocks=sum(part.blocks for part in parts),
        bytes=sum(part.bytes for part in parts),
        waits=merged([part.waits for part in parts]),
        cached_bytes=sum(part.cached_bytes for part in parts),
        fetched_bytes=sum(part.fetched_bytes for part in parts),
        requests=sum(part.requests for part in parts),
        fetch_ms=round(sum(part.fetch_ms for part in parts), 3),
        evicted_bytes=sum(part.evicted_bytes for part in parts),
    )
