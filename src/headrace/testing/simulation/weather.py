"""The faults of a simulation, drawn from its seed: at requests, between steps, and during waits.

A request may be refused, lose its reply, or be lost and perhaps arrive late, after others. It may take so
long that other jobs run meanwhile, or that its step looks stalled and is redone beside it. The local disk
may be full for a while. The process may end at any request and at any moment of the pipeline.
Threads: one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace.checkpoint.steps import Moment
from headrace.errors import TryAgain
from headrace.plan.times import TIMES
from headrace.testing.clock import ManualClock
from headrace.testing.faults.faulty_blobs import Outcome
from headrace.testing.faults.simulated_storage import SimulatedStorage
from headrace.testing.simulation.stepped_crew import Crash

STALL_MS = 2 * TIMES.step_stalled_s * 1000  # twice the time after which a step counts as stalled
MEANWHILE_MAX = 3  # jobs that run while one request is under way
_WRITES = (Moment.LOGGING, Moment.SEALING, Moment.RECOVERING)  # moments before a write to the local disk
_FAULTS = (Outcome.REFUSED, Outcome.REPLY_LOST, Outcome.REQUEST_LOST)


@dataclass(frozen=True)
class Climate:
    """The fault rates of a simulation."""

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
    """Draws the next fault; `climate` may change meanwhile."""

    randomness: random.Random
    climate: Climate
    storage: SimulatedStorage
    is_disk_full: bool = False

    def clear(self) -> None:
        """Ends all faults; the writes under way arrive."""
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
        """Makes half of the lost requests late ones."""
        if self.randomness.random() < 0.5:
            self.storage.late.append(write)

    def delay(self, clock: ManualClock, meanwhile: Callable[[], bool], look: Callable[[], None]) -> None:
        """A request is under way: `meanwhile` runs another job, `look` finds stalled steps."""
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
