"""The state of the key that user code sees: entries of its variables, and its timers.

    header = MessagePack of [timers, entry of variable 0, entry of variable 1, …]

An entry is null if the variable has no value. With a time to live, every value is [value, expiry in ms].
value: [fields] · list: [number of full chunks, [items]] · map: [[key, value], …] or the number of buckets.
Full chunks of lists and buckets of large maps are cells of their own (`spill.py`).
Invariants: `entries` and `timers` are those of the current key; `dirty` is set by every change.
Threads: one task's thread.
"""

from __future__ import annotations

from typing import Any

from headrace.spark.processors.convert import pack

Entry = Any
Header = list[Any]


class KeyedState:
    """State of the current key."""

    __slots__ = ("dirty", "entries", "key", "now_ms", "number", "reminders", "width")

    def __init__(self, variables: int, now_ms: int) -> None:
        self.width = variables + 1
        self.now_ms = now_ms  # processing time of the batch; decides what has expired
        self.entries: Header = [None] * self.width  # timers, then the variables
        self.reminders: list[int] = []  # times at which this key must be looked at again
        self.dirty = False
        self.number = 0  # position of the key in its block
        self.key: Any = None

    def load(self, header: Header | None) -> None:
        """Makes a header the current state; changes are made in place."""
        self.dirty = False
        if self.reminders:
            self.reminders = []
        if header is None:
            self.entries = [None] * self.width
        else:
            if len(header) < self.width:
                header += [None] * (self.width - len(header))
            self.entries = header

    @property
    def timers(self) -> list[int]:
        return self.entries[0] or []

    @timers.setter
    def timers(self, times_ms: list[int]) -> None:
        self.entries[0] = times_ms or None

    def remind(self, at_ms: int) -> None:
        self.reminders.append(at_ms)


def packed(header: Header | None) -> bytes | None:
    """The stored form of a header; None if the key has no state left."""
    return None if header is None or header.count(None) == len(header) else pack(header)
