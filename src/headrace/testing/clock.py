"""A clock that moves only when told to, or when someone waits on it."""

from __future__ import annotations


class ManualClock:
    """Starts at `now_ms`; `sleep_ms` returns at once and has moved time on. One thread."""

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

    def advance_ms(self, duration_ms: float) -> None:
        self._now_ms += duration_ms
