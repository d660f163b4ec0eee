"""A clock that moves only when a test moves it, or when the code under test waits on it."""

from __future__ import annotations

from headrace.clock import Waitable


class ManualClock:
    """Starts at `now_ms`; `sleep_ms` and `wait` return at once and advance the time. One thread."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = float(now_ms)
        self.slept_ms: list[float] = []

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        return self._now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        self.advance_ms(duration_ms)

    def wait(self, event: Waitable, duration_ms: float) -> bool:
        if event.wait(0):
            return True
        self.sleep_ms(duration_ms)
        return event.wait(0)

    def advance_ms(self, duration_ms: float) -> None:
        self._now_ms += duration_ms
