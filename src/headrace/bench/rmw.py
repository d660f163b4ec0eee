"""`headrace bench rmw`: a running count and sum per key, against Spark's RocksDB store and the floor.

All sides read the same files in the same batches with the same number of partitions, commit durably every
batch, and write to Spark's `noop` sink. Throughput is rows over batch time in the measured phase.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.hostwatch import host_peak_bytes
from headrace.bench.common.session import local_session
from headrace.bench.common.sides import CHANGELOG, FLOOR, HEADRACE, PYTHON, ROCKSDB, Side
from headrace.bench.common.workload import FILES_PER_BATCH, Phase, Workload, write

PARTITIONS = 2

FULL = Workload(
    keys=2_000_000,
    key_bytes=None,
    phases=(Phase("warm", 4, 500_000, load=True), Phase("main", 16, 500_000), Phase("small", 30, 1_000)),
)
QUICK = Workload(
    keys=2_000_000,
    key_bytes=None,
    phases=(Phase("warm", 4, 500_000, load=True), Phase("main", 4, 500_000), Phase("small", 12, 1_000)),
)
LARGE = Workload(
    keys=20_000_000,
    key_bytes=100,
    phases=(Phase("warm", 20, 1_000_000, load=True), Phase("main", 6, 500_000)),
)
LARGE_MEMORY = 256 << 20


def _first(batches: int) -> Workload:
    """The unmeasured first part of every side."""
    return Workload(keys=10_000, key_bytes=None, phases=(Phase("small", batches, 1_000),))


WARM_UP, WARM_UP_QUICK = _first(30), _first(8)


@dataclass(frozen=True)
class Outcome:
    """Batch times of one side in milliseconds, in order, and its host's peak memory."""

    side: Side
    batch_ms: list[float]
    host_peak_bytes: int

    def rows_per_s(self, workload: Workload, phase: str) -> float:
        span = workload.span(phase)
        rows = sum(p.rows * p.batches for p in workload.phases if p.name == phase)
        return rows / (sum(self.batch_ms[i] for i in span) / 1000)

    def median_ms(self, workload: Workload, phase: str) -> float:
        return statistics.median(self.batch_ms[i] for i in workload.span(phase))


def run(*, quick: bool = False, large: bool = False, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    workload = LARGE if large else QUICK if quick else FULL
    sides = [HEADRACE, ROCKSDB] if large else [FLOOR, PYTHON, HEADRACE, ROCKSDB, CHANGELOG]
    memory = LARGE_MEMORY if large else 1 << 30
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        console.print(f"writing {workload.batches} batches of input …")
        write(workload, scratch / "input")
        settings = {"spark.headrace.memory": str(memory), "spark.headrace.partitions": str(PARTITIONS)}
        with local_session("headrace-bench-rmw", scratch, PARTITIONS, settings) as spark:
            _warm_up(spark, WARM_UP_QUICK if quick else WARM_UP, sides, scratch / "warm-up", console)
            outcomes = [measure(spark, side, workload, scratch, console) for side in sides]
    return (_report_large if large else _report)(workload, memory, outcomes, console)


def _warm_up(spark: Any, first: Workload, sides: Sequence[Side], scratch: Path, console: Console) -> None:
    """Lets the JVM compile the code of all sides, so that the first side is not slower for being first."""
    write(first, scratch / "input")
    console.print("warming up …")
    for side in sides:
        measure(spark, side, first, scratch, Console(quiet=True))


def measure(spark: Any, side: Side, workload: Workload, scratch: Path, console: Console) -> Outcome:
    """Runs one side over all of the input."""
    for key, value in side.settings.items():
        spark.conf.set(key, value)
    schema = "key string, amount bigint" if workload.key_bytes else "key bigint, amount bigint"
    rows = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .parquet(str(scratch / "input"))
    )
    query = (
        side.plan(rows, PARTITIONS)
        .writeStream.format("noop")
        .outputMode("append" if side in (HEADRACE, PYTHON, FLOOR) else "update")
        .option("checkpointLocation", str(scratch / f"checkpoint-{side.name}"))
        .trigger(availableNow=True)
        .start()
    )
    batch_ms = _follow(query, side, workload, console)
    return Outcome(side, batch_ms, host_peak_bytes(spark) if side in (HEADRACE, PYTHON) else 0)


def _follow(query: Any, side: Side, workload: Workload, console: Console) -> list[float]:
    """Waits for the query, prints its progress, and returns the time of every batch."""
    seen: dict[int, float] = {}
    with console.status(f"{side.title}: starting") as status:
        done = False
        while not done:
            done = query.awaitTermination(1)
            for progress in query.recentProgress:
                if progress.numInputRows:
                    seen[progress.batchId] = float(progress.durationMs["triggerExecution"])
            if seen:
                latest = max(seen)
                status.update(f"{side.title}: batch {latest + 1}/{workload.batches}, {seen[latest]:.0f} ms")
    console.print(f"{side.title}: {sum(seen.values()) / 1000:.1f} s in {len(seen)} batches")
    return [seen[number] for number in range(workload.batches)]


def _report(workload: Workload, memory_bytes: int, outcomes: Sequence[Outcome], console: Console) -> str:
    by_name = {outcome.side.name: outcome for outcome in outcomes}
    rate = {name: outcome.rows_per_s(workload, "main") for name, outcome in by_name.items()}
    small = {name: outcome.median_ms(workload, "small") for name, outcome in by_name.items()}
    rows = [
        (
            outcome.side.title,
            f"{rate[name]:,.0f}",
            f"{outcome.median_ms(workload, 'main'):,.0f}",
            f"{small[name]:,.0f}",
            f"{rate['headrace'] / rate[name]:.2f}",
        )
        for name, outcome in by_name.items()
    ]
    columns = ("", "rows/s", "batch ms (500 K rows)", "batch ms (1 K rows)", "Headrace against it")
    report.show(console, "running count and sum, 2 M keys", columns, rows)
    ratios = {
        "vs_rocksdb": rate["headrace"] / rate["rocksdb"],
        "vs_changelog": rate["headrace"] / rate["changelog"],
        "of_floor": rate["headrace"] / rate["floor"],
        "jvm_vs_python": rate["headrace"] / rate["python"],
        "small_batch_jvm_vs_python": small["python"] / small["headrace"],
        "small_batch_vs_rocksdb": small["rocksdb"] / small["headrace"],
        "small_batch_vs_changelog": small["changelog"] / small["headrace"],
    }
    return report.last_line(
        "rmw",
        ratios,
        **_memory(memory_bytes, outcomes),
        rows_per_s=_rounded(rate),
        small_batch_ms=_rounded(small),
    )


def _report_large(
    workload: Workload, memory_bytes: int, outcomes: Sequence[Outcome], console: Console
) -> str:
    by_name = {outcome.side.name: outcome for outcome in outcomes}
    memory = _memory(memory_bytes, outcomes)
    main = {name: outcome.rows_per_s(workload, "main") for name, outcome in by_name.items()}
    load = {name: outcome.rows_per_s(workload, "warm") for name, outcome in by_name.items()}
    rows = [(by_name[n].side.title, f"{load[n]:,.0f}", f"{main[n]:,.0f}") for n in by_name]
    report.show(console, "20 M keys of 100 bytes, 256 MB", ("", "loading rows/s", "updating rows/s"), rows)
    console.print(f"peak resident memory of the state host: {memory['host_peak_mb']:,} MB")
    ratios = {
        "vs_rocksdb": main["headrace"] / main["rocksdb"],
        "load_vs_rocksdb": load["headrace"] / load["rocksdb"],
    }
    return report.last_line(
        "rmw-large",
        ratios,
        **memory,
        rows_per_s=_rounded(main),
        load_rows_per_s=_rounded(load),
    )


def _memory(limit_bytes: int, outcomes: Sequence[Outcome]) -> dict[str, int]:
    peak_bytes = max(outcome.host_peak_bytes for outcome in outcomes)
    return {"memory_mb": report.mb(limit_bytes), "host_peak_mb": report.mb(peak_bytes)}


def _rounded(figures: dict[str, float]) -> dict[str, int]:
    return {name: round(value) for name, value in figures.items()}
