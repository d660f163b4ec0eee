"""Protects prefetching in a running Spark. With state larger than memory, hints from the stage before the
shuffle and from the host's door bring state ahead of its rows. Results are those of a plain count."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from batch_files import finished, stream_of, write_batches
from local_hosts import hosts_of
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.clock import wait_until
from headrace.coordinator.progress import BatchProgress

pytestmark = pytest.mark.spark

KEYS, ROWS, BATCHES = 60_000, 2_000, 6
MANY = 100_000  # rows of a batch that waits for state on any machine: nearly all keys are read


@pytest.fixture
def small(own_hosts: SparkSession) -> SparkSession:
    """Hosts with memory for a part of the keys."""
    own_hosts.conf.set("spark.headrace.memory", "2m")
    own_hosts.conf.set("spark.headrace.partitions", "2")
    return own_hosts


def batches(rows: int = ROWS) -> list[pa.Table]:
    random = np.random.default_rng(5)
    first = pa.table({"k": np.arange(KEYS)})
    return [first, *(pa.table({"k": random.integers(0, KEYS, rows)}) for _ in range(BATCHES))]


def counted(
    spark: SparkSession, folder: Path, name: str, rows: int = ROWS
) -> tuple[dict[int, int], list[BatchProgress]]:
    """The counts that a query comes to, and its batches."""
    write_batches(folder / "in", batches(rows))
    counts = hr.stream(stream_of(spark, folder / "in")).name(name).groupBy("k").agg(n=hr.count())
    query, results = finished(counts, folder / "ck")
    plan = query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    assert "Python" not in plan[plan.index("Exchange") :], "stage 1 has no Python node"
    return dict(row for rows in results for row in rows), hr.progress(query)[name]


def expected(rows: int = ROWS) -> Counter[int]:
    return Counter(key for table in batches(rows) for key in table["k"].to_pylist())


@pytest.mark.parametrize(("bridge", "lookahead"), [("jvm", "stage"), ("python", "door")])
def test_state_comes_ahead_of_its_rows(
    small: SparkSession, tmp_path: Path, bridge: str, lookahead: str
) -> None:
    small.conf.set("spark.headrace.prefetch", "on")
    small.conf.set("spark.headrace.bridge", bridge)
    counts, progress = counted(small, tmp_path, f"ahead_{bridge}")
    assert counts == expected()
    reads = [batch.reads for batch in progress]
    assert {one.lookahead for one in reads} == {lookahead}
    assert sum(one.hints for one in reads) > 0
    assert sum(one.hits for one in reads) > 0
    assert all(one.hits <= one.looked_up for one in reads)


def test_auto_begins_where_rows_wait(small: SparkSession, tmp_path: Path) -> None:
    small.conf.set("spark.headrace.prefetch", "auto")
    counts, progress = counted(small, tmp_path, "ahead_auto", MANY)
    assert counts == expected(MANY)
    reads = [batch.reads for batch in progress]
    assert reads[0].lookahead == ""
    assert any(one.misses for one in reads)
    assert any(one.lookahead for one in reads)


def test_a_full_socket_stops_no_stage(small: SparkSession, tmp_path: Path) -> None:
    """While the host stands still and takes no hints, the stage before the shuffle ends."""
    small.conf.set("spark.headrace.prefetch", "stage")
    write_batches(tmp_path / "in", batches(MANY)[:3])
    counts = hr.stream(stream_of(small, tmp_path / "in")).name("full").groupBy("k").agg(n=hr.count())
    latest: dict[int, int] = {}
    stopped = threading.Event()

    def collect(batch: DataFrame, number: int) -> None:
        latest.update((row.k, row.n) for row in batch.collect())
        if number == 0:
            for host in hosts_of(tmp_path / "local"):
                host.suspend()
            stopped.set()

    writer = counts.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.trigger(availableNow=True).start()
    assert stopped.wait(120)
    try:
        assert wait_until(lambda: first_stage_ended(small) or not query.isActive, 60_000, 20)
        assert query.isActive
    finally:
        for host in hosts_of(tmp_path / "local"):
            host.resume()
    query.awaitTermination()
    assert latest == Counter(key for table in batches(MANY)[:3] for key in table["k"].to_pylist())
    assert hr.progress(query)["full"][1].reads.lookahead == "stage"


def first_stage_ended(spark: SparkSession) -> bool:
    """Whether a running job has a stage that has ended and one that has not."""
    tracker = spark.sparkContext.statusTracker()
    for job in tracker.getActiveJobsIds():
        info = tracker.getJobInfo(job)
        stages = [] if info is None else [tracker.getStageInfo(number) for number in info.stageIds]
        ended = [one.numCompletedTasks == one.numTasks for one in stages if one is not None]
        if any(ended) and not all(ended):
            return True
    return False


def test_off_reads_on_demand(small: SparkSession, tmp_path: Path) -> None:
    small.conf.set("spark.headrace.prefetch", "off")
    counts, progress = counted(small, tmp_path, "ahead_off")
    assert counts == expected()
    assert {batch.reads.lookahead for batch in progress} == {""}
    assert sum(batch.reads.hints for batch in progress) == 0
    assert sum(batch.reads.looked_up for batch in progress) > 0


def test_explain_has_the_reasons_of_missing_candidates(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = hr.stream(rates.selectExpr("value % 5 AS k")).name("rated").groupBy("k").agg(n=hr.count())
    writer = counts.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.outputMode("update").start()
    assert wait_until(lambda: query.lastProgress is not None or not query.isActive, 60_000, 50)
    query.stop()
    hr.explain(counts)
    text = capsys.readouterr().out
    assert "stage, door" in text
    assert "no scout: its source is not files" in text
    assert "no input, results: its keys are not plain columns of a Headrace operator right below" in text


def test_resident_state_gets_no_hints(spark: SparkSession, tmp_path: Path) -> None:
    counts, progress = counted(spark, tmp_path, "resident")
    assert counts == expected()
    assert sum(batch.reads.hints + batch.reads.looked_up for batch in progress) == 0
    assert {batch.reads.lookahead for batch in progress} == {""}
