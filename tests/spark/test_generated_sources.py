"""Protects the Linear Road and cluster-monitoring sources in Spark, and MiSA's four queries over them. Rows
and text arrive as generated, and the clock paces a stream. Each query gives what Spark's own batch
operators give for the windows that have closed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.bench.queries import cluster as cluster
from headrace.bench.queries import linear_road as road
from headrace.errors import QueryError
from headrace.generators.cluster import EVENTS
from headrace.generators.linear_road import REPORTS
from headrace.generators.records.options import SourceOptions
from headrace.spark.sources import cluster as cluster_source
from headrace.spark.sources import road as road_source
from headrace.spark.sources.generated import GeneratedReader, GeneratedStreamReader
from headrace.testing import ManualClock

DELAY = timedelta(seconds=3)
Rows = list[tuple[Any, ...]]

# ── without Spark ────────────────────────────────────────────────────────────────────────────


def reader(clock: ManualClock | None = None, **given: str) -> GeneratedStreamReader:
    return GeneratedStreamReader(REPORTS, SourceOptions.parse("linear_road", given), clock)


def latest(made: GeneratedStreamReader, at: int) -> int:
    return made.latestOffset({"records": at}, made.getDefaultReadLimit())["records"]


def test_unthrottled_offsets_stop_at_the_limit_and_at_the_end() -> None:
    made = reader(unthrottled="true", records="10000")
    assert [latest(made, at) for at in (0, 4500, 9000, 10_000)] == [4500, 9000, 10_000, 10_000]
    assert made.latestOffset({"records": 0}, ReadAllAvailable()) == {"records": 10_000}
    assert made.reportLatestOffset() == {"records": 10_000}
    assert reader().getDefaultReadLimit() == ReadMaxRows(4500)


def test_a_paced_stream_follows_the_clock() -> None:
    clock = ManualClock()
    made = reader(clock, rate="2500", recordsPerBatch="100000")
    assert latest(made, 500) == 500
    clock.advance_ms(3000)
    assert latest(made, 500) == 8000
    assert latest(made, 8000) == 8000
    clock.advance_ms(1)
    assert latest(made, 8000) == 8002


def test_what_must_end_needs_an_end() -> None:
    with pytest.raises(QueryError, match="needs an end"):
        GeneratedReader(EVENTS, SourceOptions.parse("cluster_monitoring", {}))
    with pytest.raises(QueryError, match="needs an end"):
        reader(unthrottled="true").prepareForTriggerAvailableNow()
    with pytest.raises(QueryError, match="waits for no clock"):
        reader(records="5").prepareForTriggerAvailableNow()


# ── with Spark ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sources(spark: SparkSession) -> SparkSession:
    road_source.register(spark)
    cluster_source.register(spark)
    return spark


def source(reader: Any, name: str, rate: int, seconds: int, **more: str) -> DataFrame:
    given = {"rate": rate, "records": rate * seconds, "recordsPerBatch": rate * 20, "unthrottled": "true"}
    return reader.format(name).options(**{**given, **more}).load()


def closed(spark: SparkSession, name: str, rate: int, seconds: int) -> tuple[DataFrame, datetime]:
    """All records as a batch, and the time up to which the stream's windows have closed."""
    rows = source(spark.read, name, rate, seconds)
    newest = rows.agg(F.max("timestamp").cast("bigint")).first()[0]
    return rows, datetime.fromtimestamp(newest, UTC) - DELAY


def streamed(
    spark: SparkSession, query: Callable[[DataFrame], DataFrame], stream: DataFrame, folder: Path
) -> list[Rows]:
    """The rows of every batch of the query, in the order of arrival."""
    got: list[Rows] = []
    built = query(stream.withWatermark("timestamp", f"{DELAY.seconds} seconds"))
    writer = built.writeStream.option("checkpointLocation", str(folder / "ck"))
    writer = writer.foreachBatch(lambda batch, _: got.append([tuple(row) for row in batch.collect()]))
    writer.trigger(availableNow=True).start().awaitTermination()
    return got


def flat(batches: list[Rows]) -> Rows:
    return sorted(row for rows in batches for row in rows)


def rows_of(df: DataFrame) -> Rows:
    return sorted(tuple(row) for row in df.collect())


def until(end: datetime) -> Any:
    return F.col("window.end") <= F.lit(end)


@pytest.mark.spark
def test_text_arrives_as_rows(sources: SparkSession) -> None:
    for name, kind, parsed in (
        ("linear_road", REPORTS, road.parsed),
        ("cluster_monitoring", EVENTS, cluster.parsed),
    ):
        expected = kind.batch(SourceOptions.parse(name, {"rate": "10"}), 0, 100).to_pylist()
        for view in ("rows", "text"):
            read = source(sources.read, name, 10, 10, view=view)
            table = (read if view == "rows" else parsed(read)).toArrow()
            assert sorted(table.to_pylist(), key=repr) == sorted(expected, key=repr)


@pytest.mark.spark
@pytest.mark.long
def test_lr4_counts_as_spark_does(sources: SparkSession, tmp_path: Path) -> None:
    rows, end = closed(sources, "linear_road", 40, 60)
    stream = source(sources.readStream, "linear_road", 40, 60)
    got = streamed(sources, lambda df: road.lr4(df).select(*_LR4), stream, tmp_path)
    window = F.window("timestamp", "20 seconds", "5 seconds")
    counts = rows.groupBy("highway", "direction", "segment", window).agg(
        F.count("vehicle").alias("numVehicle")
    )
    assert flat(got) == rows_of(counts.where(until(end)).select(*_LR4))
    assert len(got) >= 3


_LR4 = ["window.end", "highway", "direction", "segment", "numVehicle"]


@pytest.mark.spark
def test_lr2_joins_as_spark_does(sources: SparkSession, tmp_path: Path) -> None:
    rows, end = closed(sources, "linear_road", 4, 75)
    stream = source(sources.readStream, "linear_road", 4, 75)
    shown = ["window.end", "timestamp", "vehicle", "speed", "highway", "lane", "direction", "segment"]
    got = streamed(sources, lambda df: road.lr2(df).select(*shown), stream, tmp_path)
    wide = rows.withColumn("window", F.window("timestamp", "30 seconds", "1 second"))
    pairs = wide.join(wide.select("window", "vehicle"), ["window", "vehicle"]).where(until(end))
    assert flat(got) == rows_of(pairs.select(*shown))


@pytest.mark.spark
@pytest.mark.long
def test_cm1_sums_and_orders_as_spark_does(sources: SparkSession, tmp_path: Path) -> None:
    rows, end = closed(sources, "cluster_monitoring", 30, 100)
    stream = source(sources.readStream, "cluster_monitoring", 30, 100)
    got = streamed(sources, cluster.cm1, stream, tmp_path)
    window = F.window("timestamp", "60 seconds", "10 seconds")
    totals = rows.groupBy("category", window).agg(F.sum("cpu").alias("totalCpu")).where(until(end))
    assert flat(got) == rows_of(totals.select("window.end", "category", "totalCpu"))
    for batch in got:
        for moment in {row[0] for row in batch}:
            sums = [row[2] for row in batch if row[0] == moment]
            assert sums == sorted(sums)


@pytest.mark.spark
def test_cm2_averages_as_spark_does(sources: SparkSession, tmp_path: Path) -> None:
    rows, end = closed(sources, "cluster_monitoring", 30, 50)
    stream = source(sources.readStream, "cluster_monitoring", 30, 50)
    shown = ["window.end", "jobId", "avgCpu"]
    got = streamed(sources, lambda df: cluster.cm2(df).select(*shown), stream, tmp_path)
    window = F.window("timestamp", "30 seconds", "1 second")
    averages = rows.where("eventType = 1").groupBy("jobId", window).agg(F.avg("cpu").alias("avgCpu"))
    assert flat(got) == rows_of(averages.where(until(end)).select(*shown))
