"""How a store makes room: it frees memory in steps, the cheapest first, and stops when the rows fit.

    drop what can be computed again ─▶ evict rows that segments have too ─▶ spill rows of the running epoch

The parts of a share that stores use are named here, so that their sum can be seen in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from headrace.store.base.share import Part, Share

# Folded state: tables and sessions.
EVICT_TO = Part(1, 2)  # an eviction leaves this part in use: evicting so much at once keeps evictions rare
PARTIALS_MAX = Part(1, 4)  # combined slices, which are dropped first
STAGED_MAX = Part(1, 2)  # rows that were read ahead of their use, and hints
COMBINE_RANGE = Part(1, 8)  # rows of one range of hashes while a window is combined

# Kept rows: buckets and the log of sessions.
RESIDENT_MAX = Part(3, 4)  # with rows that segments have too; the rest is for the next batches
FRESH_MAX = Part(1, 2)  # rows of the running epoch: ordering a bucket takes as much memory again
READ_CHUNK = Part(1, 8)  # rows that are read from disk at a time
READ_PASS = Part(1, 2)  # rows of one pass over a window

# The store of sessions with their rows.
SESSIONS = Part(3, 8)  # bounds and counts of sessions
LOG_FRESH_MIN = Part(1, 8)  # fewer rows of the running epoch are not worth a spill
LOG_EVICT_MORE = Part(1, 8)  # an eviction of resident rows frees this much more than needed
PREFETCHED_MAX = Part(1, 3)  # rows that were read ahead

# The store of processors.
CELL_ROWS = Part(7, 8)  # state variables
REMINDER_ROWS = Part(1, 8)  # rows with the time at which a variable expires or a timer is due

# Inside RocksDB's store.
EPOCH_ROWS = Part(1, 4)  # rows of the running epoch; the rest is RocksDB's

WHOLE = Part(1, 1)

T = TypeVar("T")
Step = Callable[[], object]


class Measured(Protocol):
    """A store with its share and its use of it."""

    @property
    def share(self) -> Share: ...

    @property
    def memory_bytes(self) -> int: ...


def fits(store: Measured, more_bytes: int = 0) -> bool:
    """Whether the store stays within its share with `more_bytes` more."""
    return store.memory_bytes + more_bytes <= store.share.limit_bytes


def excess_bytes(store: Measured, part: Part = WHOLE) -> int:
    """The memory beyond a part of the share; negative while there is room."""
    return store.memory_bytes - part.of(store.share)


def make_room(store: Measured, growth: Callable[[], int], *steps: Step) -> None:
    """Takes one step after another until `growth` more bytes fit."""
    for step in steps:
        if fits(store, growth()):
            return
        step()


def evict(store: Measured, items: Iterable[T], drop: Callable[[T, int], int], to: Part) -> None:
    """Drops items in their order until a part of the share is in use.

    `drop` takes an item and the bytes that are still too many, and returns the bytes that it freed.
    """
    excess = excess_bytes(store, to)
    for item in items:
        if excess <= 0:
            return
        excess -= drop(item, excess)


def no_growth() -> int:
    """For a store that has grown already."""
    return 0
