"""Waiting until logged versions are on shared storage, when a query or the application ends.

Invariants: only versions that were logged before the wait count, so that a running query cannot prolong it.
A version that no live host works on is not waited for.
Threads: any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from headrace.clock import Clock, Deadline
from headrace.coordinator.placing.pins import Logged, PartitionKey, Pins
from headrace.errors import TryAgain
from headrace.plan.times import TIMES

log = logging.getLogger("headrace.coordinator")

_LOOK_MS = 100.0

Statuses = Callable[[], Iterable[dict[str, Any]]]  # of all hosts that answer, now


class Drain:
    """Waits for the versions of one application."""

    def __init__(self, pins: Pins, statuses: Statuses, clock: Clock) -> None:
        self._pins, self._statuses, self._clock = pins, statuses, clock

    def wait(self, within_s: float, queries: Collection[str] | None = None) -> list[PartitionKey]:
        """Waits at most `within_s`; returns the partitions whose newest version storage lacks then."""
        left, deadline = self._pins.logged(queries), Deadline(within_s * 1000, self._clock)
        report = Deadline(TIMES.drain_report_s * 1000, self._clock)
        while left:
            busy = committing(self._statuses())
            left = {key: entry for key, entry in left.items() if self._is_left(key, entry, busy)}
            if not busy & left.keys() or deadline.is_over:
                break
            if report.is_over:
                log.warning("%d partitions are not on shared storage yet: waiting for them", len(left))
                report = Deadline(TIMES.storage_report_s * 1000, self._clock)
            self._clock.sleep_ms(_LOOK_MS)
        return sorted(left)

    def _is_left(self, key: PartitionKey, logged: Logged, busy: Collection[PartitionKey]) -> bool:
        return key in busy or self._pins.lacks(key, logged)


def committing(statuses: Iterable[dict[str, Any]]) -> set[PartitionKey]:
    """The partitions with a commit under way."""
    parts = [part for status in statuses for part in status.get("partitions", ())]
    return {
        (part["query"], part["operator"], part["partition"])
        for part in parts
        if part["committing"] is not None
    }


def not_published(left: Sequence[PartitionKey], within_s: float) -> TryAgain:
    """The error for partitions that were not published in time."""
    names = ", ".join(f"{operator} {number}" for _, operator, number in left[:5])
    more = "" if len(left) <= 5 else f" and {len(left) - 5} more"
    return TryAgain(
        f"the newest state of {len(left)} partitions is in a local log only, after up to {within_s:.0f} s: "
        f"{names}{more}",
        hint="start the query again on the same machines, or call hr.stop(query) again later",
    )
