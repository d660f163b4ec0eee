"""Which files the disk cache keeps whole: pure decisions over sizes, times and histories.

A new file of this machine is kept (write-through). The file used longest ago goes first. A file that is not
whole is loaded when ranges of it must be fetched after `accesses` uses within `within_ms`, unless it was
evicted `evictions` times within `barred_ms`. So a scan, or a set of files larger than the cache, does not
wash the cache out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True)
class WholeFile:
    """A file that is whole on the disk."""

    name: str
    size: int
    used_ms: float


@dataclass(frozen=True)
class History:
    """Recent uses and evictions of one file, oldest first."""

    uses_ms: tuple[float, ...] = ()
    evictions_ms: tuple[float, ...] = ()


class CachePolicy(Protocol):
    """Decides over whole files."""

    def admits(self, size: int, limit: int) -> bool:
        """Whether a new file of this size is kept at all."""

    def victims(self, files: Sequence[WholeFile], limit: int) -> list[WholeFile]:
        """The files to evict so that the others fit."""

    def used(self, history: History, now_ms: float) -> History:
        """The history after one more use."""

    def evicted(self, history: History, now_ms: float) -> History:
        """The history after one more eviction."""

    def loads(self, history: History, now_ms: float) -> bool:
        """Whether a file with this history is worth having whole."""


@dataclass(frozen=True)
class HistoryPolicy:
    """Evicts the file used longest ago; loads back by the uses of the last minute."""

    accesses: int = 6
    apart_ms: float = 1000.0  # requests of one batch are one use
    within_ms: float = 60_000.0
    evictions: int = 3
    barred_ms: float = 600_000.0
    largest_part: int = 4  # a file above this part of the limit is never kept whole

    def admits(self, size: int, limit: int) -> bool:
        return size * self.largest_part <= limit

    def victims(self, files: Sequence[WholeFile], limit: int) -> list[WholeFile]:
        over, chosen = sum(file.size for file in files) - limit, list[WholeFile]()
        for file in sorted(files, key=lambda each: (each.used_ms, each.name)):
            if over <= 0:
                break
            chosen.append(file)
            over -= file.size
        return chosen

    def used(self, history: History, now_ms: float) -> History:
        if history.uses_ms and now_ms - history.uses_ms[-1] < self.apart_ms:
            return history
        return replace(history, uses_ms=(*history.uses_ms, now_ms)[-self.accesses :])

    def evicted(self, history: History, now_ms: float) -> History:
        evictions = (*history.evictions_ms, now_ms)[-self.evictions :]
        return History((), evictions)

    def loads(self, history: History, now_ms: float) -> bool:
        uses, evictions = history.uses_ms, history.evictions_ms
        is_hot = len(uses) == self.accesses and now_ms - uses[0] <= self.within_ms
        is_barred = len(evictions) == self.evictions and now_ms - evictions[0] <= self.barred_ms
        return is_hot and not is_barred
