"""Prefetching inside Spark: a count per key with resident state and with state larger than memory."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.bench.prefetch.traces import Trace

PARTITIONS = 2


def write_input(folder: Path, trace: Trace, load_rows: int) -> None:
    """All keys first, then the trace; one file per batch."""
    folder.mkdir(parents=True)
    loads = [
        np.arange(start, min(start + load_rows, trace.keys)) for start in range(0, trace.keys, load_rows)
    ]
    for number, keys in enumerate([*loads, *trace.batch_keys()]):
        pq.write_table(pa.table({"key": keys}), folder / f"{number:05}.parquet")


def throughput(
    spark: Any, folder: Path, name: str, settings: dict[str, str], measured: int
) -> tuple[float, float]:
    """Rows per second over the last batches, and the p99.9 of the wait for state in them."""
    for key, value in settings.items():
        spark.conf.set(key, value)
    rows = spark.readStream.schema("key bigint").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    counts = hr.stream(rows).name(name).groupBy("key").agg(n=hr.count())
    writer = counts.writeStream.format("noop").option("checkpointLocation", str(folder / f"ck-{name}"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = hr.progress(query)[name][-measured:]
    spent = [
        (one.numInputRows, one.durationMs["triggerExecution"])
        for one in query.recentProgress
        if one.numInputRows
    ][-measured:]
    rate = statistics.median(1000 * rows / max(1, ms) for rows, ms in spent)
    return rate, max(one.reads.wait_quantile_ms(0.999) for one in batches)
