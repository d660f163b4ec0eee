"""Protects the corners of PySpark's behaviour: iterators over changing state, timers that change timers,
times to live, keys of every kind. Both engines see the same, in every batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edge_classes
import pytest
from edge_classes import SEEN, Corners, Fading, Informed, Odd
from processor_case import FAR, prepared, random_batches, run, write_batches
from processor_classes import RunningCount
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def engines(spark: SparkSession) -> Iterator[None]:
    with prepared(spark, edge_classes):
        yield


def both(spark: SparkSession, folder: Path, stream: Any) -> tuple[Counter[Any], Counter[Any]]:
    """The rows of a stream in our engine and in Spark's."""
    return (
        run(spark, folder, "ours", lambda df: stream(hr.stream, df)),
        run(spark, folder, "theirs", lambda df: stream(lambda same: same, df)),
    )


def test_values_of_other_types_are_stored_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"id": f"u{v % 3}", "v": v, "ts": FAR} for v in range(15)]
    write_batches(tmp_path / "in", [rows, rows[:6]])

    def stream(keyed: Any, df: DataFrame) -> DataFrame:
        odd: DataFrame = keyed(df).groupBy("id").transformWithState(Odd(), SEEN, "Update", "None")
        return odd

    ours, theirs = both(spark, tmp_path, stream)
    assert sum(ours.values()) > 20
    assert sorted(ours - theirs) == sorted(theirs - ours)


@pytest.mark.parametrize("seed", [41, pytest.param(42, marks=pytest.mark.long)])
def test_iterators_and_timers_are_sparks(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    write_batches(tmp_path / "in", random_batches(seed))

    def stream(keyed: Any, df: DataFrame) -> DataFrame:
        timed = keyed(df.withWatermark("ts", "10 seconds")).groupBy("id")
        seen: DataFrame = timed.transformWithState(Corners(), SEEN, "Update", "EventTime")
        return seen

    ours, theirs = both(spark, tmp_path, stream)
    assert {"null", "row", "time"} == {row[1][:4] for row in ours}
    assert sorted(ours, key=str) == sorted(theirs, key=str)


def test_keys_of_every_kind_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"id": ("a", None, "b")[v % 3], "v": v % 4, "ts": FAR} for v in range(24)]
    write_batches(tmp_path / "in", [rows[:11], rows[11:]])
    number = F.when(F.col("v") == 1, F.lit(None)).when(F.col("v") == 2, F.lit(-0.0)).otherwise(F.lit(0.0))
    nested = F.struct(F.col("id"), F.col("v").alias("n"))

    def stream(keyed: Any, df: DataFrame) -> DataFrame:
        named = df.select("id", number.alias("d"), nested.alias("st"), "v")
        grouped = keyed(named).groupBy("id", "d", "st")
        counted: DataFrame = grouped.transformWithState(
            RunningCount(), "id string, n long", "Update", "None"
        )
        return counted

    ours, theirs = both(spark, tmp_path, stream)
    assert sum(ours.values()) > 12
    assert ours == theirs


def test_a_processor_gets_its_query_and_batch(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [[{"id": "a", "v": 1, "ts": FAR}]] * 2)

    def stream(df: DataFrame) -> DataFrame:
        return hr.stream(df).groupBy("id").transformWithState(Informed(), SEEN, "Update", "None")

    rows = list(run(spark, tmp_path, "ours", stream))
    query = json.loads((tmp_path / "ours" / "metadata").read_text())["id"]
    assert sorted(row[:2] for row in rows) == [(query, "0"), (query, "1")]
    assert len({row[2] for row in rows}) == 1


def test_times_to_live_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", random_batches(51, count=3)[:3])

    def stream(keyed: Any, df: DataFrame) -> DataFrame:
        grouped = keyed(df).groupBy("id")
        seen: DataFrame = grouped.transformWithState(Fading(), SEEN, "Update", "ProcessingTime")
        return seen

    ours, theirs = both(spark, tmp_path, stream)
    assert any("None" in row[2] and "True" in row[2] for row in ours if row[1] == "before")
    assert sorted(ours) == sorted(theirs)
