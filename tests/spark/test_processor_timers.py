"""Protects timers without new input: batches without rows fire timers and drop expired values, as in Spark.
A checkpoint that began without the node of the JVM goes on without it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor_case import SCHEMA, prepared, random_batches, run, write_batches
from processor_classes import OUTPUT, AllStates, Forgetful
from pyspark.sql import DataFrame, SparkSession

import headrace as hr

pytestmark = pytest.mark.spark

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def engines(spark: SparkSession) -> Iterator[None]:
    with prepared(spark, sys.modules[__name__], empty_batches=True):
        yield


def test_event_time_timers_fire_in_a_batch_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", random_batches(21)[:-1])  # the last watermark comes after the last rows

    def stream(keyed: Any) -> Any:
        return lambda df: (
            keyed(df.withWatermark("ts", "10 seconds"))
            .groupBy("id")
            .transformWithState(AllStates(), OUTPUT, "Update", "EventTime")
        )

    ours = run(spark, tmp_path, "ours", stream(hr.stream))
    theirs = run(spark, tmp_path, "theirs", stream(lambda df: df))
    assert sum(row[1] == "timer" for row in ours) > 3
    assert ours == theirs


def test_processing_time_timers_fire_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [[{"id": "a", "v": 1, "ts": "2030-01-01T00:00:00Z"}]])
    rows: list[tuple[Any, ...]] = []

    def collect(batch: DataFrame, number: int) -> None:
        rows.extend((number, *row) for row in batch.collect())

    source = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
    keyed = hr.stream(source).groupBy("id")
    results = keyed.transformWithState(Forgetful(), "id string, what string", "Update", "ProcessingTime")
    query = (
        results.writeStream.foreachBatch(collect)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "ck"))
        .start()
    )
    try:
        until = time.monotonic() + DEADLINE_S
        while len(rows) < 3 and time.monotonic() < until and query.isActive:
            time.sleep(0.05)
    finally:
        query.stop()
    assert [what for _, _, what in rows] == ["rows", "timer, value kept", "timer, value expired"]
    assert rows[-1][0] > rows[0][0]


def test_a_checkpoint_of_the_python_path_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    batches = random_batches(23)
    rows: Counter[tuple[Any, ...]] = Counter()
    before = spark.conf.get("spark.headrace.bridge")

    def stream(keyed: Any) -> Any:
        return lambda df: (
            keyed(df.withWatermark("ts", "10 seconds"))
            .groupBy("id")
            .transformWithState(AllStates(), OUTPUT, "Update", "EventTime")
        )

    for first, part, bridge in ((0, batches[:2], "python"), (2, batches[2:], "auto")):
        write_batches(tmp_path / "in", part, first)
        spark.conf.set("spark.headrace.bridge", bridge)
        try:
            rows += run(spark, tmp_path, "ours", stream(hr.stream))
        finally:
            spark.conf.set("spark.headrace.bridge", before)
    with prepared(spark):  # the Python path runs no batch without rows
        assert rows == run(spark, tmp_path, "theirs", stream(lambda df: df))
