"""Slow or unreachable storage: latencies and outages for `FaultyBlobs`, and a host that uses them.

A host with the service `headrace.testing.faults.slow_blobs:open_far?latency_ms=23` has that latency per
request on any storage. `seed` and `fault_rate` add faults. `spread` draws latencies from a log-normal
distribution with that sigma and `latency_ms` as its median.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path

from headrace.blob.base import Blobs
from headrace.blob.locations import Locations
from headrace.clock import Clock, SystemClock
from headrace.host.state.service import PartitionService
from headrace.testing.faults.faulty_blobs import (
    FaultyBlobs,
    NextOutcome,
    Outcome,
    Wait,
    all_done,
    seeded_outcomes,
)

Span = tuple[float, float]  # from, to; on the clock's monotonic milliseconds


def fixed_latency(latency_ms: float, clock: Clock) -> Wait:
    """The same latency for every request."""
    return lambda operation: clock.sleep_ms(latency_ms)


def drawn_latency(median_ms: float, spread: float, seed: int, clock: Clock) -> Wait:
    """Log-normal latencies, reproducible by seed; half of them are below `median_ms`."""
    randomness, lock = random.Random(seed), threading.Lock()

    def wait(operation: str) -> None:
        with lock:
            factor = randomness.lognormvariate(0.0, spread)
        clock.sleep_ms(median_ms * factor)

    return wait


def outages(spans: Sequence[Span], clock: Clock, otherwise: NextOutcome = all_done) -> NextOutcome:
    """Refuses everything within the spans."""

    def next_outcome(operation: str) -> Outcome:
        now_ms = clock.monotonic_ms()
        away = any(start <= now_ms < end for start, end in spans)
        return Outcome.REFUSED if away else otherwise(operation)

    return next_outcome


def open_far(
    memory_bytes: int,
    local: Path,
    *,
    latency_ms: str = "23",
    spread: str = "0",
    fault_rate: str = "0",
    seed: str = "0",
) -> PartitionService:
    """The service of a host with slow storage."""
    clock, rate, sigma = SystemClock(), float(fault_rate), float(spread)
    wait = (
        drawn_latency(float(latency_ms), sigma, int(seed), clock)
        if sigma
        else fixed_latency(float(latency_ms), clock)
    )
    faults = seeded_outcomes(int(seed), rate) if rate else all_done

    def far(blobs: Blobs) -> Blobs:
        return FaultyBlobs(blobs, faults, wait)

    return PartitionService(memory_bytes, Locations(local, wrap=far))
