"""Values of a store outside in memory: at most `entries`, each for `ttl_ms`, the oldest use goes first.

Threads: one task's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from headrace.clock import Clock

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Keys with a value; absent keys are not kept, so that a new key is seen at once."""

    def __init__(self, entries: int, ttl_ms: float | None, clock: Clock) -> None:
        self._limit, self._ttl_ms, self._clock = entries, ttl_ms, clock
        self._values: dict[str, tuple[Value, float]] = {}  # the least recently used first

    def __len__(self) -> int:
        return len(self._values)

    def known(self, keys: Iterable[str]) -> dict[str, Value]:
        """The values of keys that are in memory and not too old."""
        now, values = self._clock.monotonic_ms(), self._values
        known: dict[str, Value] = {}
        for key in keys:
            entry = values.pop(key, None)
            if entry is not None and (self._ttl_ms is None or now - entry[1] < self._ttl_ms):
                values[key] = entry
                known[key] = entry[0]
        return known

    def add(self, fetched: dict[str, Value]) -> None:
        """Keeps new values, and drops the least recently used beyond the limit."""
        now = self._clock.monotonic_ms()
        for key, value in fetched.items():
            self._values.pop(key, None)
            self._values[key] = (value, now)
        for key in list(self._values)[: max(len(self._values) - self._limit, 0)]:
            del self._values[key]
