"""`headrace bench stores`: Gadget's operators at the level of the store, without Spark.

Both sides have the same events in the same batches with the same memory. Headrace's store does the
operator's work and commits every batch to its files. RocksDB replays the accesses of Gadget's operator and
keeps no log. Throughput comes from a pass of large batches, latency from a second pass of small batches.
Each side has its own process, and the sides take turns.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.turns import Turn
from headrace.bench.stores.events import NAMES, batches, rows_of, spec_of
from headrace.bench.stores.gadget import accesses_of
from headrace.bench.stores.headrace import StoreDriver
from headrace.bench.stores.rocksdb import MEMORY_BYTES, RocksReplay
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import QueryError
from headrace.host.process.lifecycle import MEMORY_SETTINGS

WARM_UP = 3  # unmeasured first batches of each pass
TURN = 250  # batches of one side before the other side's turn, because the machine's speed varies
QUIET_S = 0.2  # pause before a turn, for the other side's background work

Step = Callable[[], int]  # one batch; everything unmeasured is done before the function is returned
Steps = Generator[Step, None, None]
Side = Callable[[str, Path, int, int], Steps]  # workload, folder, batches, events of each


@dataclass(frozen=True)
class Scale:
    """Batches and their events: of the throughput pass, of the latency pass."""

    large: tuple[int, int]
    small: tuple[int, int]


FULL = Scale(large=(43, 50_000), small=(3_003, 1_000))
QUICK = Scale(large=(9, 50_000), small=(153, 1_000))


@dataclass(frozen=True)
class Measured:
    """Events per second, and the time of the slowest batch in a thousand."""

    events_per_s: float
    p999_ms: float


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
    ours, theirs = {}, {}
    for name in names:
        with console.status(name):
            ours[name], theirs[name] = _measure(name, scale)
        console.print(f"{name}: {ours[name].events_per_s:,.0f} against {theirs[name].events_per_s:,.0f}")
    return _report(names, ours, theirs, console)


def _measure(name: str, scale: Scale) -> tuple[Measured, Measured]:
    """Headrace, and RocksDB."""
    large, small = (_seconds(name, *size) for size in (scale.large, scale.small))
    ours, theirs = (_measured(*both, scale.large[1]) for both in zip(large, small, strict=True))
    return ours, theirs


def _measured(large: Sequence[float], small: Sequence[float], events: int) -> Measured:
    return Measured(len(large) * events / sum(large), float(np.quantile(small, 0.999)) * 1000)


def _seconds(name: str, count: int, events: int) -> tuple[list[float], list[float]]:
    """The time of each batch on each side, without the first ones; the sides take turns."""
    ours: list[float] = []
    theirs: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        _turn(partial(_opened, _headrace, name, Path(folder), count, events)) as our_turn,
        _turn(partial(_opened, _rocksdb, name, Path(folder), count, events)) as their_turn,
    ):
        while len(theirs) < count:
            for took, turn in ((ours, our_turn), (theirs, their_turn)):
                SYSTEM_CLOCK.sleep_ms(QUIET_S * 1000)
                took += turn.call(_take_turn)
    return ours[WARM_UP:], theirs[WARM_UP:]


def _turn(opens: Callable[[], AbstractContextManager[Steps]]) -> Turn:
    """A process with the host's memory settings, which stores of both kinds have in the engine."""
    return Turn(opens, MEMORY_SETTINGS)


def _opened(side: Side, name: str, folder: Path, count: int, events: int) -> AbstractContextManager[Steps]:
    """Opens a side in its process.

    A measured batch creates objects, very many on RocksDB's side. They are collected between the turns and
    not in the time of a batch.
    """
    gc.disable()
    return closing(side(name, folder, count, events))


def _take_turn(steps: Steps) -> list[float]:
    gc.collect()
    return [_timed(step) for step in islice(steps, TURN)]


def _timed(step: Step) -> float:
    started_ms = SYSTEM_CLOCK.monotonic_ms()
    step()
    return (SYSTEM_CLOCK.monotonic_ms() - started_ms) / 1000


def _headrace(name: str, folder: Path, count: int, events: int) -> Steps:
    spec = spec_of(name)
    with closing(StoreDriver(spec, folder, MEMORY_BYTES)) as driver:
        for batch in batches(name, count, events):
            rows, watermark_us = rows_of(batch, spec), batch.watermark_us if spec.window else None
            yield partial(driver.batch, rows, watermark_us)


def _rocksdb(name: str, folder: Path, count: int, events: int) -> Steps:
    accesses = accesses_of(name)
    with closing(RocksReplay(folder)) as replay:
        for batch in batches(name, count, events):
            operations = accesses.batch(batch)
            yield partial(replay.batch, operations)


def _report(
    names: Sequence[str], ours: dict[str, Measured], theirs: dict[str, Measured], console: Console
) -> str:
    rows = [
        [
            name,
            *(f"{side[name].events_per_s:,.0f}" for side in (ours, theirs)),
            *(f"{side[name].p999_ms:,.1f}" for side in (ours, theirs)),
        ]
        for name in names
    ]
    columns = ("", "Headrace events/s", "RocksDB events/s", "Headrace p99.9 ms", "RocksDB p99.9 ms")
    report.show(console, "Gadget's operators, store alone", columns, rows)
    ratios = {name: ours[name].events_per_s / theirs[name].events_per_s for name in names}
    ratios.update({f"{name}_p999": theirs[name].p999_ms / ours[name].p999_ms for name in names})
    return report.last_line(
        "stores",
        ratios,
        events_per_s={name: [round(side[name].events_per_s) for side in (ours, theirs)] for name in names},
        p999_ms={name: [round(side[name].p999_ms, 2) for side in (ours, theirs)] for name in names},
        memory_mb=report.mb(MEMORY_BYTES),
    )
