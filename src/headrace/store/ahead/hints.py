"""Hints that wait for their fetch: one entry per hash and slice, with its latest time.

Invariants: hashes are ordered and distinct; there are at most `limit` of them over all slices.
Threads: the caller's lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headrace.kernels.core.order import by_hash
from headrace.kernels.sessions.rows import among
from headrace.row.arrays import I64, U64, Flags

HINT_BYTES = 24  # of an entry: hash, time, arrival


def distinct(hashes: U64) -> U64:
    """The hashes, ordered and without repetitions."""
    ordered: U64 = hashes[by_hash(hashes)]
    if len(ordered) < 2:
        return ordered
    first: Flags = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    return ordered[first]


@dataclass(frozen=True)
class Hints:
    """Hashes of one slice, with the times at which they are expected and at which they came."""

    hashes: U64
    times: I64
    arrivals_ms: I64

    def __len__(self) -> int:
        return len(self.hashes)

    def where(self, kept: Flags) -> Hints:
        return Hints(self.hashes[kept], self.times[kept], self.arrivals_ms[kept])


NO_HINTS = Hints(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))


def merged(known: Hints, more: Hints) -> Hints:
    """Both, with the latest time and the first arrival of each hash."""
    hashes = np.concatenate([known.hashes, more.hashes])
    order = by_hash(hashes)
    ordered = hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    times = np.concatenate([known.times, more.times])[order]
    arrivals = np.concatenate([known.arrivals_ms, more.arrivals_ms])[order]
    return Hints(ordered[starts], np.maximum.reduceat(times, starts), np.minimum.reduceat(arrivals, starts))


@dataclass
class WaitingHints:
    """The first stage of the buffer."""

    limit: int
    of_slice: dict[int, Hints] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.of_slice.values()))

    def add(self, slice_us: int, hints: Hints) -> int:
        """Adds hints; returns how many found no room."""
        room = max(0, self.limit - len(self))
        if len(hints) and room:
            some = hints.where(np.arange(len(hints)) < room)
            self.of_slice[slice_us] = merged(self.of_slice.get(slice_us, NO_HINTS), some)
        return max(0, len(hints) - room)

    def take(self, many: int) -> tuple[int, Hints] | None:
        """The hints of one slice that are expected first, at most so many; None: there are none."""
        if not self.of_slice:
            return None
        slice_us = min(self.of_slice, key=lambda one: int(self.of_slice[one].times.min()))
        hints = self.of_slice.pop(slice_us)
        if len(hints) > many:
            first = np.zeros(len(hints), np.bool_)
            first[np.argpartition(hints.times, many - 1)[:many]] = True
            self.of_slice[slice_us] = hints.where(~first)
            hints = hints.where(first)
        return slice_us, hints

    def remove(self, slice_us: int, hashes: U64) -> None:
        """Drops the entries of ordered hashes."""
        hints = self.of_slice.pop(slice_us, NO_HINTS)
        left = hints.where(~among(hints.hashes, hashes))
        if len(left):
            self.of_slice[slice_us] = left

    def clear(self) -> int:
        """Drops all entries; returns how many there were."""
        dropped = len(self)
        self.of_slice.clear()
        return dropped
