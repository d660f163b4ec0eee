"""A stretch of time from the first start of some work to its last end, for the timeline of a batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stretch:
    """Milliseconds since 1970; empty until work was added. Threads: the caller's lock guards it."""

    start_ms: float | None = None
    end_ms: float = 0.0

    def add(self, now_ms: float, lasted_ms: float) -> None:
        """Takes work into account that ends now."""
        start_ms = now_ms - lasted_ms
        self.start_ms = start_ms if self.start_ms is None else min(self.start_ms, start_ms)
        self.end_ms = max(self.end_ms, now_ms)

    def take(self) -> Stretch:
        """The stretch so far; it begins again empty."""
        whole = Stretch(self.start_ms, self.end_ms)
        self.start_ms, self.end_ms = None, 0.0
        return whole
