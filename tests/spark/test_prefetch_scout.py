"""Protects the scout: a small job over the files of the next batch brings its state ahead, gives way to the
batches, and does not exist where all state is in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from batch_files import finished, stream_of, write_batches
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.coordinator.progress import BatchProgress

pytestmark = pytest.mark.spark

KEYS, ROWS, BATCHES = 60_000, 2_000, 5


@pytest.fixture
def session(own_hosts: SparkSession) -> SparkSession:
    own_hosts.conf.set("spark.headrace.partitions", "2")
    return own_hosts


def batches() -> list[pa.Table]:
    random = np.random.default_rng(5)
    first = pa.table({"k": np.arange(KEYS)})
    return [first, *(pa.table({"k": random.integers(0, KEYS, ROWS)}) for _ in range(BATCHES))]


def expected() -> Counter[int]:
    return Counter(key % 50_000 for table in batches() for key in table["k"].to_pylist() if key != 7)


def counted(spark: SparkSession, folder: Path, name: str) -> tuple[dict[int, int], list[BatchProgress]]:
    """The counts that a query comes to, and its batches."""
    write_batches(folder / "in", batches())
    rows = stream_of(spark, folder / "in").where(F.col("k") != 7).select((F.col("k") % 50_000).alias("k"))
    counts = hr.stream(rows).name(name).groupBy("k").agg(n=hr.count())
    query, results = finished(counts, folder / "ck")
    return dict(row for rows in results for row in rows), hr.progress(query)[name]


def scout_jobs(spark: SparkSession) -> int:
    """Jobs of scouts so far; the name of their group begins with this."""
    context: Any = spark.sparkContext
    jobs = context._jsc.sc().statusStore().jobsList(None)
    groups = [jobs.apply(index).jobGroup() for index in range(jobs.size())]
    return sum(group.isDefined() and group.get().startswith("headrace-scout-") for group in groups)


@pytest.mark.parametrize("commit", ["sync", "async"])
def test_the_next_batch_is_read_while_one_runs(session: SparkSession, tmp_path: Path, commit: str) -> None:
    session.conf.set("spark.headrace.memory", "2m")
    session.conf.set("spark.headrace.prefetch", "scout")
    session.conf.set("spark.headrace.commit", commit)
    before = scout_jobs(session)
    counts, progress = counted(session, tmp_path, f"scouted_{commit}")
    assert counts == expected()
    reads = [batch.reads for batch in progress]
    assert {one.lookahead for one in reads} == {"scout"}
    assert 0 < scout_jobs(session) - before <= BATCHES
    assert sum(one.hints for one in reads) > 0
    assert sum(one.hits for one in reads) > 0


@contextmanager
def scheduler_warnings(spark: SparkSession) -> Iterator[Any]:
    """What Spark's scheduler warns of meanwhile."""
    log4j: Any = spark.sparkContext._gateway.jvm.org.apache.logging.log4j
    lines: Any = spark.sparkContext._gateway.jvm.java.io.StringWriter()
    name = "org.apache.spark.scheduler.DAGScheduler"
    level, appenders = log4j.core.config.Configurator.setLevel, log4j.core.appender.WriterAppender
    appender = appenders.createAppender(None, None, lines, "scheduler", False, True)
    appender.start()
    level(name, log4j.Level.WARN)
    log4j.LogManager.getLogger(name).addAppender(appender)
    try:
        yield lines
    finally:
        log4j.LogManager.getLogger(name).removeAppender(appender)
        level(name, log4j.Level.OFF)
        appender.stop()


def test_resident_state_has_no_scout(session: SparkSession, tmp_path: Path) -> None:
    before = scout_jobs(session)
    with scheduler_warnings(session) as lines:
        counts, progress = counted(session, tmp_path, "resident_scout")
    assert counts == expected()
    assert "job group" not in lines.toString(), "no job was cancelled, and nothing warns of it"
    assert scout_jobs(session) == before
    assert sum(batch.reads.hints for batch in progress) == 0
