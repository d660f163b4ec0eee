"""What goes wrong in a simulation, drawn from its seed: at requests, between steps, and while one waits.

A request may be refused, or lose its reply, or be lost and then perhaps arrive late, after others; it may
take so long that other jobs run meanwhile, or that its step seems to stand still and is done again beside
it; the local disk may be full for a while; and the process may die at any request and at any moment of the
pipeline. Threads: one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace.checkpoint.steps import Moment
from headrace.errors import TryAgain
from headrace.testing.clock import ManualClock
from headrace.testing.faulty_blobs import Outcome
from headrace.testing.simulated_storage import SimulatedStorage
from headrace.testing.stepped_crew import Crash

STALL_MS = 120_000.0  # twice what a step may be silent
MEANWHILE_MAX = 3  # jobs that run while one request is under way
_WRITES = (Moment.LOGGING, Moment.SEALING, Moment.RECOVERING)  # before something goes to the local disk
_FAULTS = (Outcome.REFUSED, Outcome.REPLY_LOST, Outcome.REQUEST_LOST)


@dataclass(frozen=True)
class Climate:
    """How bad a run is."""

    fault_rate: float = 0.0
    crash_rate: float = 0.0
    slow_rate: float = 0.0

    @classmethod
    def drawn(cls, draw: random.Random) -> Climate:
        return cls(
            draw.choice((0.0, 0.05, 0.2)), draw.choice((0.0, 0.01, 0.04)), draw.choice((0.0, 0.05, 0.3))
        )


@dataclass
class Weather:
    """What happens next; `climate` may change under it."""

    randomness: random.Random
    climate: Climate
    storage: SimulatedStorage
    is_disk_full: bool = False

    def clear(self) -> None:
        """Nothing goes wrong from now on, and what was on its way arrives."""
        self.climate, self.is_disk_full = Climate(), False
        while self.storage.late:
            self.storage.arrive(self.randomness)

    def outcome(self, operation: str) -> Outcome:
        self._perhaps_crash()
        if self.randomness.random() >= self.climate.fault_rate:
            return Outcome.DONE
        return self.randomness.choice(_FAULTS)

    def probe(self, moment: Moment) -> None:
        self._perhaps_crash()
        if moment in _WRITES:
            likely = 0.7 if self.is_disk_full else self.climate.fault_rate * 0.2
            self.is_disk_full = self.randomness.random() < likely
            if self.is_disk_full:
                raise TryAgain("the local disk is full: an injected fault")

    def lost(self, write: Callable[[], None]) -> None:
        """Half of the lost requests are only late."""
        if self.randomness.random() < 0.5:
            self.storage.late.append(write)

    def delay(self, clock: ManualClock, meanwhile: Callable[[], bool], look: Callable[[], None]) -> None:
        """A request is under way: `meanwhile` runs another job, `look` finds steps that stand still."""
        draw = self.randomness
        if draw.random() < 0.2:
            self.storage.arrive(draw)
        if draw.random() >= self.climate.slow_rate:
            return
        if draw.random() < 0.1:
            clock.advance_ms(STALL_MS)
            look()
        for _ in range(draw.randint(0, MEANWHILE_MAX)):
            if not meanwhile():
                break

    def _perhaps_crash(self) -> None:
        if self.randomness.random() < self.climate.crash_rate:
            raise Crash
