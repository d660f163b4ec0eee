"""Hosts that wait for storage, as the driver hears of it: said in its log, at first and then now and then.

Invariants: who waits is told at once and every `TELL_S`; that it is over is told once. The lines are
warnings, because they explain why a query stands still to somebody who set up no logging.
Threads: the caller holds the coordinator's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

log = logging.getLogger("headrace.coordinator")

TELL_S = 10.0


@dataclass(frozen=True)
class Waiting:
    """One host and one location that it waits for."""

    waited_ms: float
    told_s: float  # when this was last said


class StorageWaits:
    """Who waits for what."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], Waiting] = {}

    def heard(self, machine: str, waits_ms: Mapping[str, float], now_s: float) -> None:
        """A host's heartbeat says for how long it has been waiting, by location."""
        for location, ms in waits_ms.items():
            before = self._waiting.get((machine, location))
            due = before is None or now_s - before.told_s >= TELL_S
            told_s = now_s if before is None or due else before.told_s
            self._waiting[machine, location] = Waiting(ms, told_s)
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
        """For how long hosts have been waiting, by location."""
        found: dict[str, float] = {}
        for (_, location), waiting in self._waiting.items():
            found[location] = max(found.get(location, 0.0), waiting.waited_ms / 1000)
        return found

    def forget(self, machine: str) -> None:
        """The machine's host is gone, and waits no more."""
        for place in [at for at in self._waiting if at[0] == machine]:
            del self._waiting[place]
