"""`headrace bench readwrite`: Samza's ReadWrite query, with the RMW store and with RocksDB.

A stream of (id, padding of 100 random bytes); the state of an id is its number of rows and its last
padding. A loading phase has every id once, so that the measured batches have the whole state. Both sides
run in Headrace, each in its own Spark application, over the same files in the same batches, after a short
stream as warm-up.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console

import headrace as hr
from headrace.bench.common import report
from headrace.bench.common.follow import Ran, follow
from headrace.bench.common.hostwatch import host_peak_bytes, reset_peaks
from headrace.bench.common.session import local_session
from headrace.bench.common.workload import FILES_PER_BATCH, Phase, Workload, write

PARTITIONS = 2
PADDING_BYTES = 100
FULL = Workload(10_000_000, None, (Phase("load", 10, 1_000_000, load=True), Phase("main", 8, 1_000_000)))
QUICK = Workload(1_000_000, None, (Phase("load", 4, 250_000, load=True), Phase("main", 4, 250_000)))
WARM = Workload(50_000, None, (Phase("load", 1, 50_000, load=True), Phase("main", 11, 50_000)))
STORES = {"headrace": "auto", "rocksdb": "rocksdb"}
TITLES = {"headrace": "Headrace", "rocksdb": "Headrace, RocksDB store"}


@dataclass(frozen=True)
class Outcome:
    """Rows per second of both phases, and the host's peak memory."""

    load: float
    main: float
    host_peak_bytes: int


def run(*, quick: bool = False, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    return measure(QUICK if quick else FULL, (64 if quick else 512) << 20, console)


def measure(workload: Workload, memory_bytes: int, console: Console) -> str:
    """Measures both sides over the workload's files."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        console.print(f"writing {workload.batches} batches of input …")
        write(WARM, scratch / "warm", padded)
        write(workload, scratch / "input", padded)
        outcomes = {side: _measure_side(side, workload, memory_bytes, scratch, console) for side in TITLES}
    return _report(workload, memory_bytes, outcomes, console)


def padded(_: Workload, ids: npt.NDArray[np.int64], random: np.random.Generator) -> pa.Table:
    """Rows of (id, padding, at); `at` increases by a microsecond per row."""
    padding = pa.py_buffer(random.bytes(len(ids) * PADDING_BYTES))
    fixed = pa.Array.from_buffers(pa.binary(PADDING_BYTES), len(ids), [None, padding])
    at = pa.array(np.arange(len(ids)), pa.timestamp("us", tz="UTC"))
    return pa.table({"id": ids, "padding": fixed.cast(pa.binary()), "at": at})


def query(rows: Any) -> Any:
    """The number of rows of each id, and its last padding."""
    stream = hr.stream(rows).name("readwrite").withWatermark("at", "0 seconds")
    return stream.groupBy("id").agg(count=hr.count(), padding=hr.last("padding"))


def _measure_side(
    side: str, workload: Workload, memory_bytes: int, scratch: Path, console: Console
) -> Outcome:
    settings = {
        "spark.headrace.memory": str(memory_bytes),
        "spark.headrace.partitions": str(PARTITIONS),
        "spark.headrace.store": STORES[side],
    }
    with local_session(f"headrace-bench-readwrite-{side}", scratch / side, PARTITIONS, settings) as spark:
        _run(spark, side, scratch, "warm", console)
        reset_peaks(spark)
        ran = _run(spark, side, scratch, "input", console)
        return Outcome(_rate(ran, workload, "load"), _rate(ran, workload, "main"), host_peak_bytes(spark))


def _run(spark: Any, side: str, scratch: Path, files: str, console: Console) -> Ran:
    rows = spark.readStream.schema("id bigint, padding binary, at timestamp")
    rows = rows.option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(str(scratch / files))
    title = TITLES[side] + (", warm-up" if files == "warm" else "")
    return follow(query(rows), scratch / side / f"checkpoint-{files}", title, console)


def _rate(ran: Ran, workload: Workload, phase: str) -> float:
    span = workload.span(phase)
    return sum(ran.rows[at] for at in span) / (sum(ran.took_ms[at] for at in span) / 1000)


def _report(workload: Workload, memory_bytes: int, outcomes: dict[str, Outcome], console: Console) -> str:
    rows = [(TITLES[side], f"{one.load:,.0f}", f"{one.main:,.0f}") for side, one in outcomes.items()]
    title = f"ReadWrite, {workload.keys:,} keys, {report.mb(memory_bytes)} MB"
    report.show(console, title, ("", "loading rows/s", "updating rows/s"), rows)
    ours, other = outcomes["headrace"], outcomes["rocksdb"]
    return report.last_line(
        "readwrite",
        {"vs_rocksdb": ours.main / other.main, "load_vs_rocksdb": ours.load / other.load},
        rows_per_s={side: round(one.main) for side, one in outcomes.items()},
        load_rows_per_s={side: round(one.load) for side, one in outcomes.items()},
        memory_mb=report.mb(memory_bytes),
        host_peak_mb={side: report.mb(one.host_peak_bytes) for side, one in outcomes.items()},
    )
