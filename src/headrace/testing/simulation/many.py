"""Many seeds, in several processes, and the events that they met."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from headrace.clock import SystemClock
from headrace.testing.simulation.simulation import simulate

CHUNK = 100  # seeds that a process runs at a time


@dataclass(frozen=True)
class Met:
    """Counts of the events in many simulations."""

    runs: int = 0
    events: Counter[str] = field(default_factory=Counter)
    failed: tuple[str, ...] = ()

    def __add__(self, other: Met) -> Met:
        return Met(self.runs + other.runs, self.events + other.events, self.failed + other.failed)

    def __str__(self) -> str:
        verdict = "no violation" if not self.failed else "\n".join(["violations:", *self.failed])
        events = ", ".join(f"{count} {name}" for name, count in sorted(self.events.items()))
        return f"{self.runs} runs ({events}): {verdict}"


def run_seeds(seeds: Sequence[int]) -> Met:
    """Runs the seeds one after another, without output."""
    logging.getLogger("headrace").setLevel(logging.CRITICAL)
    met = Met()
    for seed in seeds:
        try:
            met += Met(1, simulate(seed).met)
        except Exception as error:
            met += Met(1, failed=(f"seed {seed}: {error!r}",))
    return met


def run_many(count: int, first: int, workers: int) -> int:
    """Runs many seeds in several processes and prints their counts; returns the exit code."""
    clock = SystemClock()
    parts = [range(first + start, first + min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as processes:
        begun_ms = clock.monotonic_ms()
        met = sum(processes.map(run_seeds, parts), Met())
    minutes = (clock.monotonic_ms() - begun_ms) / 60_000
    print(f"{met}\n{met.runs / minutes:,.0f} runs a minute, in {workers} processes")
    return 1 if met.failed else 0
