"""One side of one query in Spark: state is loaded, then files come at a pace, cold files on a local disk.

While the last files of the load are read, batches are as large as the side can manage: that is its
throughput. The first side of a query, LRU, chooses the pace of all: the rate at which it would use 70 % of
the CPU, and at most `FASTEST` of its throughput.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import headrace as hr
from headrace.bench.common.cpu import used_s
from headrace.bench.common.session import local_session
from headrace.bench.common.turns import Turn
from headrace.bench.prefetch.paced import (
    Feeder,
    batch_of_file,
    ended_ms,
    feeding,
    files_through,
    latencies_ms,
    offset_of,
)
from headrace.bench.prefetch.queries import QUERIES, ROW_BYTES, Scale, SparkSide, nexmark_rows, side_table
from headrace.clock import SYSTEM_CLOCK, wait_until
from headrace.files.opened import DROP_BEHIND
from headrace.wire.state_reads import StateReads, together

PARTITIONS = CORES = 2
BUSY, FASTEST = 0.7, 0.8
FILES_MAX, WAIT_MS = 16, 240_000  # of a batch
QUANTILES = (0.5, 0.95, 0.99, 0.999)
FILTER_BYTES = 40 << 10  # of a task's sketch


@dataclass(frozen=True)
class Paced:
    """What one side measured; times are in ms."""

    rows_per_s: float  # while it had all input at once
    load_cpu: float  # part of the cores that was in use then
    rate: float  # of the paced rows
    cpu: float
    latency_ms: dict[str, float]
    batch_p50_ms: float
    reads: StateReads
    state_mb: float
    hint_share: float  # hint bytes over shuffled bytes

    @property
    def wait_p999_ms(self) -> float:
        return self.reads.wait_quantile_ms(0.999)


def write_input(folder: Path, query: str, scale: Scale) -> None:
    """The files of the load, those that will be fed, and q13's table."""
    rows = nexmark_rows(scale)
    bounds = np.linspace(0, scale.load_events, scale.load_files + 1).astype(int).tolist()
    bounds += [scale.load_events + number * scale.file_events for number in range(1, scale.files + 1)]
    for name in ("load", "ready"):
        (folder / name).mkdir(parents=True)
    for number, (low, high) in enumerate(pairwise(bounds)):
        part = "load" if number < scale.load_files else "ready"
        path = folder / part / f"{number:05}.parquet"
        pq.write_table(rows(low, high), path, compression="lz4")
        os.utime(path, (1_700_000_000 + number,) * 2)
    if query == "q13":
        (folder / "table").mkdir()
        pq.write_table(side_table(scale), folder / "table" / "0.parquet")


def measure(folder: Path, query: str, side: SparkSide, scale: Scale, rate: float | None) -> Paced:
    """One side, in a process of its own; without a rate it chooses one."""
    scratch = folder.parent / f"{query}-{side.name}"
    settings = {
        "spark.headrace.partitions": str(PARTITIONS),
        "spark.headrace.memory": f"{scale.memory_of(query)}m",
        "spark.sql.streaming.numRecentProgressUpdates": "5000",
        **side.settings,
    }
    opens = partial(local_session, "headrace-bench-prefetch", scratch, CORES, settings)
    with Turn(opens, {DROP_BEHIND: "1"}) as turn:
        return turn.call(_measured, folder, scratch, query, scale, rate)


def _measured(
    spark: Any, folder: Path, scratch: Path, query: str, scale: Scale, rate: float | None
) -> Paced:
    inbox = scratch / "in"
    inbox.mkdir(parents=True)
    for path in (folder / "load").iterdir():
        os.link(path, inbox / path.name)
    schema = spark.read.parquet(str(folder / "load")).schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_MAX).parquet(str(inbox))
    results = QUERIES[query](source, scratch if query != "q13" else _with_table(folder, scratch))
    writer = results.writeStream.format("noop").outputMode("append")
    running = writer.option("checkpointLocation", str(scratch / "ck")).queryName(query).start()
    try:
        return _run(spark, running, folder, scratch, query, scale, rate)
    finally:
        running.stop()


def _with_table(folder: Path, scratch: Path) -> Path:
    os.symlink(folder / "table", scratch / "table")
    return scratch


def _run(
    spark: Any, running: Any, folder: Path, scratch: Path, query: str, scale: Scale, rate: float | None
) -> Paced:
    cpu = partial(_cpu_s, spark)
    _await_files(running, scratch, scale.load_files // 2)
    cpu_before, begun = cpu(), SYSTEM_CLOCK.monotonic_ms()
    _await_files(running, scratch, scale.load_files)
    took_s = (SYSTEM_CLOCK.monotonic_ms() - begun) / 1000
    load_cpu = (cpu() - cpu_before) / took_s / CORES
    loaded = [one for one in running.recentProgress if one.numInputRows]
    fastest = statistics.median(
        1000 * one.numInputRows / one.durationMs["triggerExecution"] for one in loaded[len(loaded) // 2 :]
    )
    scans = loaded[-1].numInputRows / max(1, _events(scale, loaded))
    rate = rate or fastest / scans * min(FASTEST, BUSY / load_cpu)
    feeder = Feeder(folder / "ready", scratch / "in", 1000 * scale.file_events / rate)
    first, cpu_before, begun = loaded[-1].batchId + 1, cpu(), SYSTEM_CLOCK.monotonic_ms()
    with feeding(feeder):
        _await_files(running, scratch, scale.load_files + scale.files)
    busy = (cpu() - cpu_before) * 1000 / (SYSTEM_CLOCK.monotonic_ms() - begun) / CORES
    paced = [one for one in running.recentProgress if one.batchId >= first and one.numInputRows]
    return _summary(running, query, feeder, scratch, paced, (fastest / scans, load_cpu, rate, busy))


def _events(scale: Scale, loaded: list[Any]) -> int:
    """Events of a batch of the load: a query with two streams of one source counts them twice."""
    return scale.load_events // scale.load_files * min(FILES_MAX, scale.load_files)


def _cpu_s(spark: Any) -> float:
    from headrace.spark.driver.driver import coordinator_for

    return used_s(host.pid for host in coordinator_for(spark).hosts().values())


def _await_files(running: Any, scratch: Path, files: int) -> None:
    """Waits until so many files were read by batches that have ended."""

    def are_read() -> bool:
        if running.exception() is not None:
            raise running.exception()
        last = running.lastProgress
        return last is not None and len(files_through(scratch / "ck", offset_of(last))) >= files

    if not wait_until(are_read, WAIT_MS, 300):
        raise TimeoutError(f"{files} files were not read in {WAIT_MS / 1000:.0f} s")


def _summary(
    running: Any,
    query: str,
    feeder: Feeder,
    scratch: Path,
    paced: list[Any],
    speed: tuple[float, float, float, float],
) -> Paced:
    ends_ms = {one.batchId: ended_ms(one) for one in paced}
    batches = batch_of_file(scratch / "ck", list(running.recentProgress))
    latency_ms = latencies_ms(feeder, batches, ends_ms)
    mine = [one for one in hr.progress(running)[query] if one.batch in ends_ms]
    reads = together([one.reads for one in mine])
    waited_ms, spilled_ms = sum(o.reads.wait_ms for o in mine), sum(o.reads.spill_ms for o in mine)
    reads = StateReads(**{**vars(reads), "wait_ms": waited_ms, "spill_ms": spilled_ms})
    rows = sum(one.rows_in for one in mine)
    values = np.quantile(latency_ms, QUANTILES).round(1).tolist()
    quantiles = {f"p{100 * part:g}": value for part, value in zip(QUANTILES, values, strict=True)}
    return Paced(
        *speed,
        latency_ms=quantiles,
        batch_p50_ms=statistics.median(one.durationMs["triggerExecution"] for one in paced),
        reads=reads,
        state_mb=sum(file.stat().st_size for file in scratch.rglob("*.segment")) / 1e6,
        hint_share=8 * reads.hints / max(1, rows * ROW_BYTES),
    )
