"""Protects the path from a Spark task through coordinator and host and back, over a fake state service."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from host_fakes import counting
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import stored_record
from headrace.plan.frontier import TimeInputs
from headrace.plan.spec import OperatorSpec
from headrace.spark.driver.checkpoint_files import HadoopFiles
from headrace.spark.driver.driver import RunningCoordinator, coordinator_for
from headrace.spark.task.task import TaskPlan, task_of
from headrace.testing.crash import short_spark

pytestmark = pytest.mark.spark

DELAYED = OperatorSpec(**{**counting().__dict__, "name": "timed", "delays_ms": (10_000,)})


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    base = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .config(map=short_spark.SETTINGS)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.streaming.stateless.enabled", "false")
        .config("spark.sql.warehouse.dir", str(base / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    pids = [host.pid for host in coordinator_for(session).hosts().values()]
    session.stop()
    assert pids
    for pid in pids:
        eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists())


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Bench:
    """One streaming query over files of (k, ts), counted by the fake service."""

    def __init__(self, spark: SparkSession, folder: Path, local: Path) -> None:
        self.spark, self.folder, self.local = spark, folder, local
        self.files = 0
        (folder / "in").mkdir()

    @property
    def coordinator(self) -> RunningCoordinator:
        return coordinator_for(self.spark)

    def feed(self, keys: list[int], second: int = 1000) -> None:
        rows = [{"k": key, "ts": second} for key in keys]
        text = "\n".join(json.dumps(row) for row in rows)
        path = self.folder / "in" / f"{self.files}.json"
        path.write_text(text)
        os.utime(path, (self.files + 1, self.files + 1))  # Spark takes files in the order of their times
        self.files += 1

    def source(self) -> DataFrame:
        files = self.spark.readStream.schema("k long, ts long").option("maxFilesPerTrigger", 1)
        return files.json(str(self.folder / "in"))

    def counts(self, spec: OperatorSpec, rows: DataFrame, **plan: Any) -> DataFrame:
        coordinator = self.coordinator
        task = task_of(
            TaskPlan(
                spec=spec,
                uid=plan.pop("uid", spec.name),
                coordinator=coordinator.address,
                secret=coordinator.secret,
                application=coordinator.application,
                local=str(self.local),
                memory_bytes=1 << 20,
                retain=3,
                service="host_fakes:open_fake",
                warm=False,
                **plan,
            )
        )
        wire = rows.select(F.xxhash64("k").alias("__hash"), F.col("k").alias("k0"))
        group = F.shiftrightunsigned("__hash", 54)
        placed = wire.repartitionById(spec.partitions, (group * spec.partitions / 1024).cast("int"))
        return placed.mapInArrow(task, "k0 long, a0 long")

    def run(
        self, df: DataFrame, write: Callable[[DataFrame, int], None] | None = None
    ) -> list[tuple[int, ...]]:
        """Run what is there; returns all rows that reached the sink."""
        got: list[tuple[int, ...]] = []

        def collect(batch: DataFrame, number: int) -> None:
            got.extend((number, *row) for row in batch.collect())

        writer = df.writeStream.option("checkpointLocation", str(self.folder / "ck")).foreachBatch(
            write or collect
        )
        self.query = writer.trigger(availableNow=True).start()
        self.query.awaitTermination()
        return sorted(got)


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(spark, tmp_path, tmp_path_factory.getbasetemp() / "local")


def test_counts_go_on_over_batches_and_restarts(bench: Bench) -> None:
    bench.feed([1, 2, 2])
    bench.feed([2])
    assert bench.run(bench.counts(counting(), bench.source())) == [(0, 1, 1), (0, 2, 2), (1, 2, 3)]
    bench.feed([1, 5])
    assert bench.run(bench.counts(counting(), bench.source())) == [(2, 1, 2), (2, 5, 1)]
    record = stored_record(LocalFiles(f"file:{bench.folder}/ck"), "counts")
    assert record is not None
    assert record.begun == (0, 1, 2)
    assert record.location == str(bench.folder / "ck/headrace-state")
    progress = bench.coordinator.progress(bench.query.id, "counts")
    assert [(batch.batch, batch.partitions, batch.rows_in) for batch in progress] == [(2, 2, 2)]


def test_a_union_and_a_coalesce_keep_partitions_apart(bench: Bench) -> None:
    for keys in ([1, 2, 3], [2], [3, 3], [1]):
        bench.feed(keys)
    left = bench.counts(counting("left", 4), bench.source().where("k < 3"))
    right = bench.counts(counting("right", 4), bench.source())
    got = bench.run(left.union(right).coalesce(1))
    expected = [(0, 1, 1), (0, 2, 1), (1, 2, 2), (3, 1, 2)]
    expected += [(0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 2, 2), (2, 3, 3), (3, 1, 2)]
    assert got == sorted(expected)


def test_event_times_reach_the_host_in_their_batch(bench: Bench) -> None:
    bench.feed([1], second=1000)
    bench.feed([1, 2], second=1100)
    timed = bench.source().withColumn("ts", F.timestamp_seconds("ts")).withWatermark("ts", "10 seconds")
    node = timed._jdf.queryExecution().analyzed().nodeId().toString()
    bench.run(bench.counts(DELAYED, timed, times=TimeInputs((node,), direct=(node,))))
    progress = bench.coordinator.progress(bench.query.id, "timed")
    assert [batch.watermark_ms for batch in progress] == [1_000_000, 1_100_000]


def test_a_host_killed_between_runs_is_replaced(bench: Bench) -> None:
    bench.feed([1])
    bench.run(bench.counts(counting("first"), bench.source()))
    hosts = bench.coordinator.hosts()
    assert len(hosts) == 1
    os.kill(next(iter(hosts.values())).pid, signal.SIGKILL)
    (bench.folder / "other").mkdir()
    other = Bench(bench.spark, bench.folder / "other", bench.local)
    other.feed([7, 7])
    assert other.run(other.counts(counting("second"), other.source())) == [(0, 7, 2)]


def test_two_operators_of_one_name_are_refused(bench: Bench) -> None:
    bench.feed([1])
    both = [bench.counts(counting(), bench.source(), uid=uid) for uid in ("a", "b")]
    with pytest.raises(Exception, match="two operators of one query are named counts"):
        bench.run(both[0].union(both[1]))


def test_a_removed_record_is_not_a_silent_restart(bench: Bench) -> None:
    bench.feed([1])
    bench.run(bench.counts(counting(), bench.source()))
    shutil.rmtree(bench.folder / "ck/headrace-operators/counts.log")
    bench.feed([1])
    with pytest.raises(Exception, match="has no record at batch 1"):
        bench.run(bench.counts(counting(), bench.source()))


def test_a_batch_that_is_only_shown_is_noticed(bench: Bench) -> None:
    bench.feed(list(range(40)))
    bench.feed([1])
    with pytest.raises(Exception, match="must use the whole batch"):
        bench.run(
            bench.counts(counting(), bench.source()),
            lambda batch, number: batch.limit(1).collect() and None,
        )


def test_outside_a_streaming_query_it_is_refused(bench: Bench) -> None:
    rows = bench.spark.range(3).withColumnRenamed("id", "k")
    with pytest.raises(Exception, match="runs only in a streaming query"):
        bench.counts(counting(), rows).collect()


def test_small_files_through_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    root = f"file:{tmp_path}/ck"
    files = HadoopFiles(root, context._gateway, context._jsc.hadoopConfiguration())
    assert files.read("a/b.json") is None
    for text in ("first → 1", "second"):
        files.write("a/b.json", text)
        assert files.read("a/b.json") == text
        assert LocalFiles(root).read("a/b.json") == text
    assert files.put("a/1", "one")
    assert not files.put("a/1", "two")
    assert files.read("a/1") == LocalFiles(root).read("a/1") == "one"
    assert files.list("a") == ["1", "b.json"]
    files.remove("a/1")
    files.remove("a/1")
    assert files.list("a") == ["b.json"]
    assert not list((tmp_path / "ck/a").glob("*.tmp")), "nothing is left behind"


def test_the_task_is_light() -> None:
    heavy = "[name for name in ('numba', 'pandas', 'pyspark') if name in sys.modules]"
    program = f"import sys, headrace.spark.task.evaluation; print({heavy})"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"
