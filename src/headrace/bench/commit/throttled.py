"""`headrace bench commit --throttled`: MiSA's queries as in its figures 9 to 14.

Records arrive at a constant rate. A batch has all that arrived since the one before it, so a side that
falls behind gets larger batches. All sides have their state and Spark's checkpoint on storage with the same
latency per request (`FarFileSystem.scala`, `testing/faults/slow_blobs.py`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyspark
from rich.console import Console

from headrace.bench.commit import spark as commit_spark
from headrace.bench.commit.input import DELAY, KINDS
from headrace.bench.commit.pace_report import Arrival, Paced, report
from headrace.bench.commit.run import (
    FEW_GROUPS,
    LATENCY_MS,
    MEMORY_BYTES,
    OURS,
    PARTITIONS,
    far_storage,
    names_of,
)
from headrace.bench.common.session import local_session
from headrace.bench.common.sides import CHANGELOG, ROCKSDB
from headrace.generators.records.options import TRIGGER_S
from headrace.jvm.build import jar_path
from headrace.spark.sources import cluster, road

OF_SPARK = {"spark": ROCKSDB.settings, "changelog": CHANGELOG.settings}
_PACKAGE = "org.apache.spark.sql.headrace"
UNBOUNDED = 1 << 40
LOOK_S = 0.2


@dataclass(frozen=True)
class Pace:
    """How many batches each side runs at which rates; the first `warm` of a run are not measured."""

    batches: int = 100
    warm: int = 10
    rates: tuple[int, ...] = (1_500, 2_500)
    trigger_s: float = TRIGGER_S
    sides: tuple[str, ...] = ("async", "sync", "spark")


FULL = Pace()
QUICK = Pace(batches=8, warm=4, rates=(1_500,), trigger_s=1.0, sides=("async", "spark"))


def run(*, quick: bool = False, only: Sequence[str] = (), trigger_s: float = TRIGGER_S) -> str:
    """Runs the benchmark and returns its JSON line; the short one has one query unless some are named."""
    names = names_of(only or (("lr4",) if quick else ()))
    pace = QUICK if quick else replace(FULL, trigger_s=trigger_s)
    return measure(pace, names, Console(stderr=True))


def measure(pace: Pace, names: Sequence[str], console: Console) -> str:
    """Measures all sides and returns the JSON line."""
    paced: dict[tuple[int, str, str], Paced] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, far_storage(LATENCY_MS):
        scratch = Path(folder)
        for side in pace.sides:
            with _session(side, scratch) as spark:
                for rate in pace.rates:
                    for name in names:
                        title = f"{side}: {name}, {rate} records/s"
                        with console.status(title):
                            run = _run(spark, pace, side, name, rate, scratch)
                        paced[rate, side, name] = run
                        console.print(f"{title}: {run.mean_ms:,.0f} ms per batch")
    return report(pace.sides, paced, pace.trigger_s, console)


@contextmanager
def _session(side: str, scratch: Path) -> Iterator[Any]:
    settings = {
        "spark.headrace.memory": str(MEMORY_BYTES),
        "spark.headrace.partitions": str(PARTITIONS),
        "spark.headrace.commit": "sync" if side in OF_SPARK else side,
        "spark.headrace.state.location": str(scratch / "state"),
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraClassPath": str(jar_path(pyspark.__version__)),
        "spark.hadoop.fs.far.impl": f"{_PACKAGE}.FarFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.far.impl": f"{_PACKAGE}.FarFiles",
        "spark.hadoop.fs.far.latency.ms": str(LATENCY_MS),
        **OF_SPARK.get(side, {}),
    }
    with local_session(f"headrace-bench-pace-{side}", scratch / side, settings=settings) as spark:
        road.register(spark)
        cluster.register(spark)
        yield spark


def _run(spark: Any, pace: Pace, side: str, name: str, rate: int, scratch: Path) -> Paced:
    """Runs one query until it has the batches; a batch without records does not count."""
    spark.conf.set("spark.headrace.combine", "on" if name in FEW_GROUPS else "auto")
    queries = commit_spark.QUERIES if side in OF_SPARK else OURS
    source = spark.readStream.format(KINDS[name].name)
    source = source.option("rate", rate).option("recordsPerBatch", UNBOUNDED)
    df = queries[name](source.load().withWatermark("timestamp", DELAY))
    checkpoint = f"far:{scratch}/checkpoint-{side}-{name}-{rate}"
    writer = df.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime=f"{round(pace.trigger_s * 1000)} milliseconds").start()
    arrivals: dict[int, Arrival] = {}
    try:
        while len(arrivals) < pace.warm + pace.batches:
            query.awaitTermination(LOOK_S)  # raises if the query has failed
            arrivals.update(arrivals_of(query.recentProgress))
    finally:
        query.stop()
    return Paced([arrivals[number] for number in sorted(arrivals)][pace.warm : pace.warm + pace.batches])


def arrivals_of(progress: Sequence[Any]) -> dict[int, Arrival]:
    """The batches with records. A self-join reads its stream twice; the offsets of one reading count."""
    arrivals: dict[int, Arrival] = {}
    for batch in progress:
        source = batch.sources[0]
        start, end = (_offset(text) for text in (source.startOffset, source.endOffset))
        if end > start:
            arrivals[batch.batchId] = Arrival(end - start, float(batch.durationMs["triggerExecution"]))
    return arrivals


def _offset(text: str | None) -> int:
    """The number of records before an offset; the first batch of a query starts from `null`."""
    offset = json.loads(text) if text else None
    return 0 if offset is None else int(offset["records"])
