"""The host's memory limit, shared by all open partitions.

Invariants: the shares of all partitions add up to at most `TABLE_PART` of the limit; the rest is for runs
being sealed, rows on the wire and merge chunks.
Threads: any.
"""

from __future__ import annotations

import threading

TABLE_PART = 0.45
SHARE_MIN = 1 << 20


class MemoryBudget:
    """Hands every open partition an equal share of the limit."""

    def __init__(self, limit_bytes: int, share_min: int = SHARE_MIN) -> None:
        self.limit_bytes = limit_bytes
        self._share_min = share_min
        self._open = 0
        self._mutex = threading.Lock()

    def join(self) -> None:
        with self._mutex:
            self._open += 1

    def leave(self) -> None:
        with self._mutex:
            self._open -= 1

    @property
    def share_bytes(self) -> int:
        """What the tables and filters of one partition may take now."""
        return max(self._share_min, int(self.limit_bytes * TABLE_PART) // max(1, self._open))
