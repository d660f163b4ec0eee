"""Protects: an operator's watermark is that of its own inputs (docs/design/0005-watermarks.md).

Single cases whose expected rows can be told by hand; `tests/equivalence/test_watermark_dags.py` has random
ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError

FAR = 3_000_000_000  # a second that closes all windows before it
Batch = list[tuple[str, int]]  # keys and seconds


@pytest.fixture(params=["python", "jvm"], autouse=True)
def _path(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """One partition, and windows that close in the batch whose data passes them, on both paths."""
    yield from configured(spark, bridge=request.param, timing="eager")


@pytest.fixture
def by_spark(spark: SparkSession) -> Iterator[None]:
    """Windows that close by Spark's watermark."""
    yield from configured(spark, bridge="jvm", timing="spark")


def configured(spark: SparkSession, **values: str) -> Iterator[None]:
    settings = {f"spark.headrace.{name}": value for name, value in {"partitions": "1", **values}.items()}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, earlier in before.items():
        spark.conf.unset(name) if earlier is None else spark.conf.set(name, earlier)


def stream(spark: SparkSession, folder: Path, *batches: Batch) -> DataFrame:
    """A stream of (k, ts), one file per batch."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(batches):
        stamps = pa.array([second * 1_000_000 for _, second in rows], pa.timestamp("us", tz="UTC"))
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table({"k": [key for key, _ in rows], "ts": stamps}), path)
        os.utime(path, (1000 + number,) * 2)
    files = spark.readStream.schema("k string, ts timestamp").option("maxFilesPerTrigger", 1)
    return files.parquet(str(folder))


def run(df: DataFrame, folder: Path) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Rows of closed windows as (batch, key, start, n), and late rows by operator."""
    got: list[tuple[Any, ...]] = []

    def collect(batch: DataFrame, number: int) -> None:
        start = F.col("window.start").cast("long")
        got.extend((number, *row) for row in batch.select("k", start, "n").collect())

    writer: Any = df.writeStream.option("checkpointLocation", str(folder / "ck")).foreachBatch(collect)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    late = {name: sum(batch.late_rows for batch in done) for name, done in hr.progress(query).items()}
    return sorted(got), late


def counted(df: DataFrame, name: str, **window: Any) -> DataFrame:
    keys = ("k", hr.tumbling("10 seconds", **window))
    total = hr.sum("n") if "n" in df.columns else hr.count()
    return hr.stream(df).name(name).groupBy(*keys).agg(n=total)


def slow(column: str, seconds: float) -> Column:
    def wait(value):  # type: ignore[no-untyped-def]
        time.sleep(seconds)
        return value

    return F.udf(wait, "string")(column)


def test_a_slow_branch_beside_a_chain_takes_nothing_from_it(spark: SparkSession, tmp_path: Path) -> None:
    batches = [[("a", 100), ("b", 5)], [("a", 101), ("b", 6)], [("a", FAR), ("b", FAR)]]
    events = stream(spark, tmp_path / "in", *batches).withWatermark("ts", "0 seconds")
    beside = counted(events.where("k = 'a'").select(slow("k", 1.0).alias("k"), "ts"), "a")
    below = counted(events.where("k = 'b'"), "b")
    rows, late = run(beside.union(counted(below, "b2", on="window")), tmp_path)
    assert rows == [(2, "a", 100, 2), (2, "b", 0, 2)]
    assert late == {"a": 0, "b": 0, "b2": 0}


def test_windows_that_come_again_within_their_lateness_are_not_late_above(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The lower operator emits [0, 10) when the watermark passes it, and again with the late row."""
    batches = [[("a", 5)], [("a", 12)], [("a", 7)], [("a", FAR)]]
    events = stream(spark, tmp_path / "in", *batches).withWatermark("ts", "0 seconds")
    below = counted(events, "below", lateness="20 seconds")
    rows, late = run(counted(below, "above", on="window"), tmp_path)
    assert rows == [(3, "a", 0, 1 + 2), (3, "a", 10, 1)]
    assert late == {"below": 0, "above": 0}


def joined(spark: SparkSession, folder: Path) -> DataFrame:
    """A row of second 1 leaves its join window [0, 10) in the batch of second 11 or after it."""
    batches = [[("a", 1), ("a", 8)], [("a", 11)], [("a", 12)], [("a", FAR)]]
    events = stream(spark, folder / "in", *batches).withWatermark("ts", "0 seconds")
    left, right = events, events.withColumnRenamed("ts", "other")
    pairs = hr.stream(left).name("join").join(hr.stream(right), on="k", window=hr.tumbling("10 seconds"))
    return pairs.drop("window")


def test_rows_of_a_join_keep_their_own_time_and_are_not_late_above(
    spark: SparkSession, tmp_path: Path
) -> None:
    pairs = hr.stream(joined(spark, tmp_path)).name("above").groupBy("k", hr.tumbling("2 seconds", on="ts"))
    rows, late = run(pairs.agg(n=hr.count()), tmp_path)
    assert [row[1:] for row in rows] == [("a", 0, 2), ("a", 8, 2), ("a", 10, 2), ("a", 12, 2)]
    assert late == {"join": 0, "above": 0}


@pytest.mark.usefixtures("by_spark")
@pytest.mark.parametrize("_path", ["jvm"], indirect=True)
class TestBySparksWatermark:
    """The same chains where windows close by Spark's watermark, a batch later."""

    def test_windows_that_come_again_are_not_late_above(self, spark: SparkSession, tmp_path: Path) -> None:
        batches = [[("a", 5)], [("a", 12)], [("a", 13)], [("a", 7)], [("a", FAR)]]
        events = stream(spark, tmp_path / "in", *batches).withWatermark("ts", "0 seconds")
        below = counted(events, "below", lateness="20 seconds")
        rows, late = run(counted(below, "above", on="window"), tmp_path)
        assert [row[1:] for row in rows] == [("a", 0, 1 + 2), ("a", 10, 2)]
        assert late == {"below": 0, "above": 0}

    def test_they_are_not_late_for_an_operator_of_spark(self, spark: SparkSession, tmp_path: Path) -> None:
        batches = [[("a", 5)], [("a", 12)], [("a", 13)], [("a", 7)], [("a", FAR)]]
        events = stream(spark, tmp_path / "in", *batches).withWatermark("ts", "0 seconds")
        below = counted(events, "below", lateness="20 seconds")
        keys = ("k", F.window(F.window_time("window"), "10 seconds").alias("window"))
        rows, late = run(below.groupBy(*keys).agg(F.sum("n").alias("n")), tmp_path)
        assert [row[1:] for row in rows] == [("a", 0, 1 + 2), ("a", 10, 2)]
        assert late == {"below": 0}

    def test_rows_of_a_join_are_not_late_above(self, spark: SparkSession, tmp_path: Path) -> None:
        keys = ("k", hr.tumbling("2 seconds", on="ts"))
        pairs = hr.stream(joined(spark, tmp_path)).name("above").groupBy(*keys)
        rows, late = run(pairs.agg(n=hr.count()), tmp_path)
        assert [row[1:] for row in rows] == [("a", 0, 2), ("a", 8, 2), ("a", 10, 2), ("a", 12, 2)]
        assert late == {"join": 0, "above": 0}


def test_a_time_inside_of_a_session_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    events = stream(spark, tmp_path / "in", [("a", 1)]).withWatermark("ts", "0 seconds")
    sessions = hr.stream(events).groupBy("k", hr.session("5 seconds")).agg(first=hr.min("ts"), n=hr.count())
    with pytest.raises(QueryError, match="aggregate-1, whose windows may last") as refused:
        counted(sessions.drop("window"), "above", on="first")
    assert 'on="window"' in refused.value.hint
    counted(sessions, "above", on="window")
    counted(sessions.select("k", "n", F.col("window.end").alias("end")), "above", on="end")


def test_streams_of_one_query_keep_watermarks_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """The example of docs/watermarks.md: Spark would keep the fast stream waiting, or lose the slow one."""
    clicks = stream(spark, tmp_path / "clicks", [("c", 5)], [("c", 25)], [("c", 1000)], [("c", 1030)])
    orders = stream(spark, tmp_path / "orders", [("o", 1)], [("o", 2)], [("o", 3)], [("o", 15)])
    fast = counted(clicks.withWatermark("ts", "10 seconds"), "clicks")
    slow = counted(orders.withWatermark("ts", "10 seconds"), "orders")
    rows, late = run(fast.union(slow), tmp_path)
    assert rows == [(1, "c", 0, 1), (2, "c", 20, 1), (3, "c", 1000, 1)], "no window waits for an order"
    assert late == {"clicks": 0, "orders": 0}, "and no order is late for a click"


def test_an_operator_over_two_streams_goes_by_the_slowest(spark: SparkSession, tmp_path: Path) -> None:
    clicks = stream(spark, tmp_path / "clicks", [("c", 5)], [("c", 25)], [("c", 1000)])
    orders = stream(spark, tmp_path / "orders", [("o", 1)], [("o", 2)], [("o", 15)])
    both = clicks.withWatermark("ts", "0 seconds").union(orders.withWatermark("ts", "0 seconds"))
    rows, late = run(counted(both, "both", on="ts"), tmp_path)
    assert rows == [(2, "c", 0, 1), (2, "o", 0, 2)]
    assert late == {"both": 0}


def test_the_fastest_is_refused_where_an_operator_uses_several(spark: SparkSession, tmp_path: Path) -> None:
    first = stream(spark, tmp_path / "a", [("a", 1)]).withWatermark("ts", "0 seconds")
    second = stream(spark, tmp_path / "b", [("b", 1)]).withWatermark("ts", "0 seconds")
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")
    try:
        with pytest.raises(QueryError, match="multipleWatermarkPolicy is max"):
            counted(first.union(second), "both", on="ts")
        counted(first, "first").union(counted(second, "second"))
    finally:
        spark.conf.unset("spark.sql.streaming.multipleWatermarkPolicy")
