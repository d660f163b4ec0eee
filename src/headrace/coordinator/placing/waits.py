"""Hosts that wait for storage: the driver logs each wait when it begins, at intervals, and when it ends.

Invariants: a wait is logged at once and then every `storage_report_s`; its end is logged once. The lines
are warnings, so that they appear where no logging is set up: they explain why a query does not advance.
Threads: the caller holds the coordinator's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.plan.times import TIMES

log = logging.getLogger("headrace.coordinator")


@dataclass(frozen=True)
class Waiting:
    """One host's wait for one location."""

    waited_ms: float
    logged_s: float  # time of the last log line about this wait


class StorageWaits:
    """The current waits of all hosts."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], Waiting] = {}

    def update(self, machine: str, waits_ms: Mapping[str, float], now_s: float) -> None:
        """Takes the waits of a host's heartbeat, by location, and logs what is due."""
        for location, ms in waits_ms.items():
            before = self._waiting.get((machine, location))
            due = before is None or now_s - before.logged_s >= TIMES.storage_report_s
            logged_s = now_s if before is None or due else before.logged_s
            self._waiting[machine, location] = Waiting(ms, logged_s)
            if due:
                log.warning(
                    "the state host of %s waits for %s since %.0f s; its batches go on when it is back",
                    machine,
                    location,
                    ms / 1000,
                )
        for place in [at for at in self._waiting if at[0] == machine and at[1] not in waits_ms]:
            waited_ms = self._waiting.pop(place).waited_ms
            log.warning("%s is back for %s after about %.0f s", place[1], machine, waited_ms / 1000)

    def longest_s(self) -> dict[str, float]:
        """The longest current wait per location."""
        longest: dict[str, float] = {}
        for (_, location), waiting in self._waiting.items():
            longest[location] = max(longest.get(location, 0.0), waiting.waited_ms / 1000)
        return longest

    def drop(self, machine: str) -> None:
        """Drops the waits of a machine whose host is lost."""
        for place in [at for at in self._waiting if at[0] == machine]:
            del self._waiting[place]
