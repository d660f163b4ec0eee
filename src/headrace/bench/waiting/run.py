"""`headrace bench async`: what asynchronous processors gain where calls wait, and cost where they do not.

Waiting: every row of one batch waits 5 ms for an external read; all rows have different keys. One side is
an asynchronous processor, one reads a row at a time, and one reads in a pool of threads before a
synchronous processor, with the best of several pool sizes. All sides run on Headrace, in two tasks.
Bypass: no row waits; the asynchronous processor against the synchronous one, in turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.cpu import used_s
from headrace.bench.common.follow import follow
from headrace.bench.common.session import local_session
from headrace.bench.common.workload import FILES_PER_BATCH, Phase, Workload, write
from headrace.bench.waiting.classes import READ_MS, SUMS, AsyncSum, SyncSum, reading

PARTITIONS = 2
POOLS = (32, 128, 512)
PARTS = ("waiting", "bypass")


@dataclass(frozen=True)
class Side:
    """One measurement: rows per second after the first batch, and CPU over its whole run."""

    rows_per_s: float
    cpu_us_per_row: float


Sides = dict[str, Side]


def run(*, quick: bool = False, only: list[str] | None = None, console: Console | None = None) -> str:
    """Runs the benchmark, or one part of it, and returns its JSON line."""
    console, parts = console or Console(stderr=True), only or list(PARTS)
    waiting: Sides = {}
    bypass: list[Sides] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        _write(scratch, quick)
        settings = {"spark.headrace.partitions": str(PARTITIONS)}
        with local_session("headrace-bench-async", scratch, PARTITIONS, settings) as spark:
            bench = _Bench(spark, scratch, console)
            for name, processor in {"sync": SyncSum(), "async": AsyncSum()}.items():
                bench.side(f"warm-up {name}", "bypass", processor)
            if "waiting" in parts:
                waiting = _waiting(bench)
            if "bypass" in parts:
                bypass = [_bypass(bench, turn) for turn in range(1 if quick else 3)]
    return _report(waiting, bypass, quick, console)


def _write(scratch: Path, quick: bool) -> None:
    keys = 4_000 if quick else 20_000
    phases = (Phase("load", 1, 500, load=True), Phase("main", 1, keys, load=True))
    write(Workload(keys, None, phases), scratch / "waiting")
    keys, rows, batches = (20_000, 10_000, 3) if quick else (200_000, 50_000, 5)
    phases = (Phase("load", 1, rows, load=True), Phase("main", batches, rows))
    write(Workload(keys, None, phases), scratch / "bypass")


@dataclass(frozen=True, eq=False)
class _Bench:
    """A session, and what all measurements share."""

    spark: Any
    scratch: Path
    console: Console

    def side(
        self, name: str, source: str, processor: Any, before: Callable[..., Any] | None = None
    ) -> Side:
        import headrace as hr

        df = (
            self.spark.readStream.schema("key bigint, amount bigint")
            .option("maxFilesPerTrigger", FILES_PER_BATCH)
            .parquet(str(self.scratch / source))
        )
        if before is not None:
            df = df.mapInArrow(before, df.schema)
        results = hr.stream(df).groupBy("key").transformWithState(processor, SUMS, "Update", "None")
        began_s = used_s(self._hosts())
        ran = follow(results, self.scratch / f"checkpoint-{name}", name, self.console, mode="update")
        cpu_s = used_s(self._hosts()) - began_s
        return Side(ran.rows_per_s(skipped=1), cpu_s * 1e6 / sum(ran.rows.values()))

    def _hosts(self) -> list[int]:
        from headrace.spark.driver.driver import coordinator_for

        return [host.pid for host in coordinator_for(self.spark).hosts().values()]


def _waiting(bench: _Bench) -> Sides:
    sides = {"async": bench.side("async", "waiting", AsyncSum(READ_MS))}
    for threads in POOLS:
        name = f"threads_{threads}"
        sides[name] = bench.side(name, "waiting", SyncSum(), reading(threads))
    sides["one_at_a_time"] = bench.side("one at a time", "waiting", SyncSum(READ_MS))
    return sides


def _bypass(bench: _Bench, turn: int) -> Sides:
    sides = {"sync": SyncSum(), "async": AsyncSum()}
    order = list(sides) if turn % 2 else list(sides)[::-1]
    return {name: bench.side(f"bypass {name} {turn}", "bypass", sides[name]) for name in order}


def _report(waiting: Sides, bypass: list[Sides], quick: bool, console: Console) -> str:
    lines = [*waiting.items()]
    for turn, sides in enumerate(bypass):
        lines += [(f"bypass {name} {turn}", side) for name, side in sides.items()]
    rows = [(name, f"{side.rows_per_s:,.0f}", f"{side.cpu_us_per_row:,.0f}") for name, side in lines]
    report.show(console, "asynchronous processors", ("side", "rows/s", "CPU µs/row"), rows)
    ratios = {**_of_waiting(waiting), **_of_bypass(bypass)}
    per_s = {name: round(side.rows_per_s) for name, side in lines}
    cpu = {name: round(side.cpu_us_per_row, 1) for name, side in lines}
    return report.last_line("async", ratios, quick=quick, rows_per_s=per_s, cpu_us_per_row=cpu)


def _of_waiting(sides: Sides) -> dict[str, float]:
    if not sides:
        return {}
    ours = sides["async"].rows_per_s
    threads = max(side.rows_per_s for name, side in sides.items() if name.startswith("threads"))
    return {"vs_one_at_a_time": ours / sides["one_at_a_time"].rows_per_s, "vs_threads": ours / threads}


def _of_bypass(turns: list[Sides]) -> dict[str, float]:
    if not turns:
        return {}
    return {"bypass": median(sides["async"].rows_per_s / sides["sync"].rows_per_s for sides in turns)}
