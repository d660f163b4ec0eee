"""The host's memory limit, shared by all open partitions.

A partition that needs little has `SPARE` times that; what is left goes to the others in equal parts. One
that grows takes its part back, and the others evict with their next rows.
Invariants: the shares of all partitions add up to at most `TABLE_PART` of the limit, unless that is less
than the least share for each. The rest is for runs being flushed, rows on the wire and merge chunks.
Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

TABLE_PART = 0.45
SHARE_MIN = 1 << 20
SPARE = 4  # a store makes room when it has filled a good part of its share: it must not look small for that
FORGOTTEN_PART = 8  # of what a partition needed, this part is forgotten with every batch


class MemoryBudget:
    """Hands every open partition its share of the limit."""

    def __init__(self, limit_bytes: int, share_min: int = SHARE_MIN) -> None:
        self.limit_bytes = limit_bytes
        self._share_min = share_min
        self._open: list[PartitionShare] = []
        self._mutex = threading.Lock()

    def join(self) -> PartitionShare:
        part = PartitionShare(self)
        with self._mutex:
            self._open.append(part)
            self._share_out()
        return part

    def leave(self, part: PartitionShare) -> None:
        with self._mutex:
            self._open.remove(part)
            self._share_out()

    def need(self, part: PartitionShare, bytes_now: int, *, batch_ended: bool) -> None:
        with self._mutex:
            kept = part.needed_bytes or 0
            part.needed_bytes = max(bytes_now, kept - kept // FORGOTTEN_PART if batch_ended else kept)
            self._share_out()

    def _share_out(self) -> None:
        needs = [part.needed_bytes for part in self._open]
        given = shares(int(self.limit_bytes * TABLE_PART), needs, self._share_min)
        for part, share in zip(self._open, given, strict=True):
            part.limit_bytes = share


class PartitionShare:
    """The memory that one partition may take: a `Share` that the budget adjusts."""

    def __init__(self, whole: MemoryBudget) -> None:
        self._whole = whole
        self.needed_bytes: int | None = None  # not known before its first rows
        self.limit_bytes = 0

    def uses(self, bytes_now: int) -> None:
        """The partition takes so much in the middle of a batch."""
        if self.needed_bytes is None or bytes_now > self.needed_bytes:
            self._whole.need(self, bytes_now, batch_ended=False)

    def batch_ended(self, bytes_now: int) -> None:
        """It takes so much after a batch; what it took in earlier ones counts less and less."""
        self._whole.need(self, bytes_now, batch_ended=True)

    def close(self) -> None:
        self._whole.leave(self)


def shares(bytes_all: int, needs: Sequence[int | None], least: int) -> list[int]:
    """What each partition gets, from what they need; None: it is not known yet."""
    reserves = [bytes_all if need is None else max(least, SPARE * need) for need in needs]
    small: set[int] = set()
    level = _level(bytes_all, reserves, small)
    while more := {at for at, reserve in enumerate(reserves) if at not in small and reserve < level}:
        small |= more
        level = _level(bytes_all, reserves, small)
    if len(small) < len(reserves):
        return [reserve if at in small else max(least, level) for at, reserve in enumerate(reserves)]
    spare = (bytes_all - sum(reserves)) // max(1, len(reserves))
    return [reserve + spare for reserve in reserves]


def _level(bytes_all: int, reserves: Sequence[int], small: set[int]) -> int:
    """The equal part of those that are not small; 0 when all are."""
    rest = len(reserves) - len(small)
    return (bytes_all - sum(reserves[at] for at in small)) // rest if rest else 0
