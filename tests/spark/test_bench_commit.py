"""Protects `bench commit`: Spark is given the queries that Headrace is given, and all are measured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from headrace.bench.commit import run as commit
from headrace.bench.commit import spark as commit_spark
from headrace.bench.commit.input import DELAY, KINDS, Load, write

pytestmark = [pytest.mark.spark, pytest.mark.long]

LOAD = Load(24, 120, 4)  # 24 batches of 3 s, 40 records each second
END = datetime.fromtimestamp(1_335_830_400 + 60, UTC)  # windows of CM1 that end here have closed
ROWS = {
    "lr2": ["window.end", "vehicle", "speed", "highway", "lane", "direction", "segment"],
    "lr4": ["window.end", "highway", "direction", "segment", "numVehicle"],
    "cm1": ["end", "category", "round(totalCpu, 3) as totalCpu"],
    "cm2": ["window.end", "jobId", "round(avgCpu, 6) as avgCpu"],
}


@pytest.fixture(autouse=True)
def _settings(spark: SparkSession) -> Iterator[None]:
    yield
    for key in ("spark.headrace.commit", *commit.ROCKSDB.settings):
        spark.conf.unset(key)


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """All of the load in three batches."""
    rows = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    return rows.option("maxFilesPerTrigger", 16).parquet(str(folder)).withWatermark("timestamp", DELAY)


def given(df: DataFrame, folder: Path) -> list[tuple[object, ...]]:
    got: list[tuple[object, ...]] = []
    writer = df.writeStream.option("checkpointLocation", str(folder)).trigger(availableNow=True)
    writer.foreachBatch(
        lambda batch, _: got.extend(tuple(row) for row in batch.collect())
    ).start().awaitTermination()
    return sorted(got)


@pytest.mark.parametrize("name", commit.NAMES)
def test_spark_gives_the_same_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    write(LOAD, KINDS[name], tmp_path)
    sides = {}
    for side, queries in (("ours", commit.OURS), ("spark", commit_spark.QUERIES)):
        rows = queries[name](stream(spark, LOAD.folder(tmp_path, KINDS[name]))).selectExpr(*ROWS[name])
        sides[side] = given(rows.where(F.col("end") <= F.lit(END)), tmp_path / side)
    assert len(sides["ours"]) > 0
    assert sides["ours"] == sides["spark"]


def test_every_side_is_measured(spark: SparkSession, tmp_path: Path) -> None:
    small, large = Load(4, 60, 1), Load(4, 90, 1)
    scale = commit.Scale(small, small, large, large, small)
    bench = commit.Bench(scale, tmp_path, Console(quiet=True))
    for load in scale.loads("lr4").values():
        write(load, KINDS["lr4"], tmp_path / "input")
    bench.measure_ours(spark, ["lr4"])
    bench.measure_spark(spark, ["lr4"])
    assert not bench.failed
    measured = {(load, side) for load, side, _ in bench.outcomes}
    assert measured == {
        ("small", "sync"),
        ("small", "async"),
        ("warm", "spark"),
        ("large", "upload"),
        ("large", "async"),
        ("large", "spark"),
    }
    for (_, side, _), outcome in bench.outcomes.items():
        assert outcome.batches == (1, 2, 3)
        assert side == "spark" or all(ms > 0 for ms in outcome.critical_ms)
