"""The only place that knows the time.

Everything that waits or measures takes a `Clock`, so that tests decide how time passes
(`headrace.testing.ManualClock`).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for people and for file ages; may jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some moment, for durations; never goes back."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after `duration_ms`."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)
