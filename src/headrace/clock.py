"""The only source of time.

Everything that waits or measures takes a `Clock`, so that tests control time
(`headrace.testing.ManualClock`). `SYSTEM_CLOCK` is the default where nobody passes one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Waitable(Protocol):
    """An event, or a condition whose lock the caller has."""

    def wait(self, timeout: float | None = None) -> bool:
        """Returns when it is set or notified, or after `timeout` seconds."""


class Clock(Protocol):
    """Reads the time and waits."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for log lines and file ages; may jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary moment, for durations; never decreases."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Returns after `duration_ms`."""

    def wait(self, event: Waitable, duration_ms: float) -> bool:
        """Waits for an event, at most `duration_ms`; returns whether it was set or notified."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)

    def wait(self, event: Waitable, duration_ms: float) -> bool:
        return event.wait(duration_ms / 1000)


SYSTEM_CLOCK: Clock = SystemClock()


class Deadline:
    """A moment that lies `within_ms` after the deadline was made."""

    def __init__(self, within_ms: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock, self._end_ms = clock, clock.monotonic_ms() + within_ms

    @property
    def left_ms(self) -> float:
        """The time until the moment; negative after it."""
        return self._end_ms - self._clock.monotonic_ms()

    @property
    def is_over(self) -> bool:
        return self.left_ms <= 0


def wait_until(
    holds: Callable[[], bool], within_ms: float, every_ms: float, clock: Clock = SYSTEM_CLOCK
) -> bool:
    """Checks `holds` every `every_ms` until it is true; returns False after `within_ms`."""
    deadline = Deadline(within_ms, clock)
    while not holds():
        if deadline.is_over:
            return False
        clock.sleep_ms(every_ms)
    return True
