"""When the phases of a transaction ran, for the timeline of a batch.

Invariants: a phase has one span per transaction, from its first start to its last end.
Threads: the sealing thread and the transaction's own; each phase belongs to one of them.
"""

from __future__ import annotations

import threading

from headrace.clock import Clock
from headrace.wire.contract import Span

KEPT = 16  # compactions between two commits of a partition are few


class PhaseSpans:
    """The spans of one transaction."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._spans: dict[str, Span] = {}

    def ended(self, phase: str, lasted_ms: float) -> None:
        """Record that a part of a phase ends now."""
        end_ms = self._clock.now_ms()
        start_ms = end_ms - round(lasted_ms)
        before = self._spans.get(phase)
        self._spans[phase] = Span(phase, start_ms if before is None else before.start_ms, end_ms)

    def ended_since_begin(self, phase: str) -> float:
        """Record a phase that began with the transaction; returns its milliseconds."""
        end_ms = self._clock.now_ms()
        self._spans[phase] = Span(phase, self._began_ms, end_ms)
        return float(end_ms - self._began_ms)

    def recorded(self) -> tuple[Span, ...]:
        return tuple(self._spans.values())


class BackgroundSpans:
    """Spans of background work of one partition, until a commit reports them."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._mutex = threading.Lock()

    def add(self, span: Span) -> None:
        with self._mutex:
            self._spans = [*self._spans, span][-KEPT:]

    def drain(self) -> tuple[Span, ...]:
        """The spans since the last call."""
        with self._mutex:
            spans, self._spans = self._spans, []
        return tuple(spans)
