"""`headrace bench stores`: Gadget's operators at the level of the store, without Spark.

Both sides have the same events in the same batches with the same memory. Headrace's store does the
operator's work and commits every batch to its files. RocksDB replays the accesses of Gadget's operator and
keeps no log. Throughput comes from a pass of large batches, latency from a second pass of small batches.
Each side has its own process, and the sides take turns. A third pass measures CPU time: of Headrace's
store, and of RocksDB without its binding (`cost.py`).
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console

from headrace.bench.common import report
from headrace.bench.stores.cost import Cost, cost_of
from headrace.bench.stores.events import NAMES
from headrace.bench.stores.rocksdb import MEMORY_BYTES
from headrace.bench.stores.sides import Steps, headrace_steps, rocksdb_steps, turn_of
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import QueryError

P999_SAMPLES = 1000
WARM_UP = 3  # unmeasured first batches of each pass
TURN = 250  # batches of one side before the other side's turn, because the machine's speed varies
QUIET_S = 0.2  # pause before a turn, for the other side's background work


@dataclass(frozen=True)
class Scale:
    """Batches and their events: of the throughput pass, of the latency pass, of the pass for CPU time."""

    large: tuple[int, int]
    small: tuple[int, int]
    cost: tuple[int, int]


FULL = Scale(large=(43, 50_000), small=(3_003, 1_000), cost=(23, 50_000))
QUICK = Scale(large=(9, 50_000), small=(153, 1_000), cost=(9, 50_000))


@dataclass(frozen=True)
class Measured:
    """Events per second, and the time of the slowest batch in a thousand; None of fewer batches."""

    events_per_s: float
    p999_ms: float | None


def run(*, quick: bool = False, only: Sequence[str] = (), console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    unknown = sorted(set(only) - set(NAMES))
    if unknown:
        raise QueryError(
            f"no workload is called {', '.join(unknown)}", hint=f"choose from {', '.join(NAMES)}"
        )
    scale = QUICK if quick else FULL
    return measure_all([name for name in NAMES if not only or name in only], scale, console)


def measure_all(names: Sequence[str], scale: Scale, console: Console) -> str:
    ours, theirs, costs = {}, {}, {}
    for name in names:
        with console.status(name):
            ours[name], theirs[name] = _measure(name, scale)
            costs[name] = cost_of(name, *scale.cost)
        console.print(f"{name}: {ours[name].events_per_s:,.0f} against {theirs[name].events_per_s:,.0f}")
    return _report(names, ours, theirs, costs, console)


def _measure(name: str, scale: Scale) -> tuple[Measured, Measured]:
    """Headrace, and RocksDB."""
    large, small = (_seconds(name, *size) for size in (scale.large, scale.small))
    ours, theirs = (measured(*both, scale.large[1]) for both in zip(large, small, strict=True))
    return ours, theirs


def measured(large: Sequence[float], small: Sequence[float], events: int) -> Measured:
    p999_ms = float(np.quantile(small, 0.999)) * 1000 if len(small) >= P999_SAMPLES else None
    return Measured(len(large) * events / sum(large), p999_ms)


def _seconds(name: str, count: int, events: int) -> tuple[list[float], list[float]]:
    """The time of each batch on each side, without the first ones; the sides take turns."""
    ours: list[float] = []
    theirs: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        turn_of(headrace_steps, name, Path(folder), count, events) as our_turn,
        turn_of(rocksdb_steps, name, Path(folder), count, events) as their_turn,
    ):
        while len(theirs) < count:
            for took, turn in ((ours, our_turn), (theirs, their_turn)):
                SYSTEM_CLOCK.sleep_ms(QUIET_S * 1000)
                took += turn.call(_take_turn)
    return ours[WARM_UP:], theirs[WARM_UP:]


def _take_turn(steps: Steps) -> list[float]:
    gc.collect()
    return [_timed(step) for step in islice(steps, TURN)]


def _timed(step: Callable[[], int]) -> float:
    started_ms = SYSTEM_CLOCK.monotonic_ms()
    step()
    return (SYSTEM_CLOCK.monotonic_ms() - started_ms) / 1000


def _report(
    names: Sequence[str],
    ours: dict[str, Measured],
    theirs: dict[str, Measured],
    costs: dict[str, Cost],
    console: Console,
) -> str:
    p999 = {name: (ours[name].p999_ms, theirs[name].p999_ms) for name in names}
    rows = [
        [
            name,
            *(f"{side[name].events_per_s:,.0f}" for side in (ours, theirs)),
            *("" if ms is None else f"{ms:,.1f}" for ms in p999[name]),
            f"{costs[name].binding_share:.0%}",
            *(f"{us:.2f}" for us in costs[name].cpu_us),
        ]
        for name in names
    ]
    columns = [f"{side} {what}" for what in ("events/s", "p99.9 ms") for side in ("Headrace", "RocksDB")]
    columns += ["binding", "Headrace CPU µs/event", "RocksDB CPU µs/event, no binding"]
    report.show(console, "Gadget's operators, store alone", ["", *columns], rows)
    ratios = {name: ours[name].events_per_s / theirs[name].events_per_s for name in names}
    ratios.update({f"{name}_p999": b / a for name, (a, b) in p999.items() if a and b})
    ratios.update({f"{name}_inside": costs[name].ratio for name in names})
    return report.last_line(
        "stores",
        ratios,
        events_per_s={name: [round(side[name].events_per_s) for side in (ours, theirs)] for name in names},
        p999_ms={name: [None if ms is None else round(ms, 2) for ms in of] for name, of in p999.items()},
        binding_share={name: round(costs[name].binding_share, 2) for name in names},
        cpu_us_per_event={name: [round(us, 3) for us in costs[name].cpu_us] for name in names},
        memory_mb=report.mb(MEMORY_BYTES),
    )
