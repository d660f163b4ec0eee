"""Prefetching inside Spark where there is nothing to gain: a count per key with all state in memory."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import headrace as hr
from headrace.bench.common import report
from headrace.bench.common.session import local_session
from headrace.bench.prefetch.queries import MODE
from headrace.bench.prefetch.traces import Trace

PARTITIONS = 2
TURNS = 3


def resident(quick: bool, console: Console) -> tuple[dict[str, float], Any]:
    """Rows per second with `auto` over `off`; the two take turns."""
    keys, batches = (60_000, 6) if quick else (400_000, 16)
    trace = Trace("q18", keys, keys // 2, batches, 0.375)
    rates: dict[str, list[float]] = {"off": [], "auto": []}
    hints = 0
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as text:
        folder = Path(text)
        _write_input(folder / "in", trace, keys // 2)
        settings = {"spark.headrace.partitions": str(PARTITIONS), "spark.headrace.memory": "512m"}
        with local_session("headrace-bench-prefetch", folder / "s", PARTITIONS, settings) as spark:
            for turn in range(TURNS):
                for mode, measured in rates.items():
                    rate, sent = _throughput(spark, folder, f"{mode}_{turn}", mode, batches)
                    measured.append(rate)
                    hints += sent
    rows = [(mode, f"{statistics.median(measured):,.0f}") for mode, measured in rates.items()]
    report.show(console, "resident, in Spark", ("prefetch", "rows/s, median"), rows)
    ratio = statistics.median(rates["auto"]) / statistics.median(rates["off"])
    return {"resident": ratio}, {"rows_per_s": rates, "hints": hints}


def _write_input(folder: Path, trace: Trace, load_rows: int) -> None:
    """All keys first, then the trace; one file per batch."""
    folder.mkdir(parents=True)
    loads = [
        np.arange(start, min(start + load_rows, trace.keys)) for start in range(0, trace.keys, load_rows)
    ]
    for number, keys in enumerate([*loads, *trace.batch_keys()]):
        pq.write_table(pa.table({"key": keys}), folder / f"{number:05}.parquet")


def _throughput(spark: Any, folder: Path, name: str, mode: str, measured: int) -> tuple[float, int]:
    """Rows per second over the last batches, and the hints in all of them."""
    spark.conf.set(MODE, mode)
    rows = spark.readStream.schema("key bigint").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    counts = hr.stream(rows).name(name).groupBy("key").agg(n=hr.count())
    writer = counts.writeStream.format("noop").option("checkpointLocation", str(folder / f"ck-{name}"))
    query = writer.outputMode("update").trigger(availableNow=True).start()
    query.awaitTermination()
    spent = [
        (one.numInputRows, one.durationMs["triggerExecution"])
        for one in query.recentProgress
        if one.numInputRows
    ][-measured:]
    hints = sum(one.reads.hints for one in hr.progress(query)[name])
    return statistics.median(1000 * rows / max(1, ms) for rows, ms in spent), hints
