"""Protects asynchronous processors in Spark: rows, timers and state are those of PySpark's own engine with
a processor that takes one row after the other, restarts included. A failed batch leaves state as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import async_classes
import pytest
from async_classes import OUTPUT, Async, Failing, Large, Twin
from processor_case import EMPTY_BATCHES, FAR, PROVIDER, random_batches, run, write_batches
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from test_processors import ours, theirs

import headrace as hr

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def rocksdb(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, PROVIDER)
    spark.conf.set(EMPTY_BATCHES, "false")
    cloudpickle.register_pickle_by_value(async_classes)  # workers cannot import test modules
    yield
    cloudpickle.unregister_pickle_by_value(async_classes)
    spark.conf.set(name, before)
    spark.conf.unset(EMPTY_BATCHES)


def test_rows_and_timers_are_sparks_on_both_paths(spark: SparkSession, tmp_path: Path) -> None:
    batches = random_batches(7, count=2)
    streams: dict[str, Any] = {
        "waiting": lambda df: ours(df).transformWithState(Async(True), OUTPUT, "Update", "EventTime"),
        "bypass": lambda df: ours(df).transformWithState(Async(False), OUTPUT, "Update", "EventTime"),
        "spark": lambda df: theirs(df).transformWithState(Twin(), OUTPUT, "Update", "EventTime"),
    }
    rows: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in streams}
    for first, part in ((0, batches[:2]), (2, batches[2:])):  # a restart in between
        write_batches(tmp_path / "in", part, first)
        for name, stream in streams.items():
            rows[name] += run(spark, tmp_path, name, stream)
    assert {row[1] for row in rows["spark"]} == {"row", "timer"}
    assert rows["waiting"] == rows["spark"]
    assert rows["bypass"] == rows["spark"]


def test_a_failed_batch_leaves_state_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"id": key, "v": v, "ts": FAR} for key in "abcdef" for v in (1, 2)]
    write_batches(tmp_path / "in", [rows, [*rows, {"id": "c", "v": 13, "ts": FAR}]])

    def stream(processor: Async) -> Any:
        return lambda df: ours(df).transformWithState(processor, OUTPUT, "Update", "EventTime")

    with pytest.raises(StreamingQueryException) as failed:
        run(spark, tmp_path, "ours", stream(Failing(True)))
    assert "thirteen" in str(failed.value)
    assert "key ('c',)" in str(failed.value)
    counts = Counter((row[0], row[2]) for row in run(spark, tmp_path, "ours", stream(Async(True))))
    assert counts == Counter({**{(key, n): 1 for key in "abcdef" for n in (3, 4)}, ("c", 5): 1})


def test_large_collections_are_fetched_from_the_host(spark: SparkSession, tmp_path: Path) -> None:
    batches = [
        [{"id": key, "v": n * 1000 + v, "ts": FAR} for key in "ab" for v in range(1000)] for n in range(3)
    ]
    write_batches(tmp_path / "in", batches)
    rows = run(
        spark,
        tmp_path,
        "ours",
        lambda df: hr.stream(df).groupBy("id").transformWithState(Large(), OUTPUT, "Update", "None"),
    )
    ends = (1000, 2000, 3000)
    expected = {(key, str(end), sum(range(end)), "Row(n=8)"): 1 for key in "ab" for end in ends}
    assert rows == Counter(expected)


def test_frames_are_refused(spark: SparkSession) -> None:
    df = spark.readStream.format("rate").load()
    grouped = hr.stream(df).groupBy("value")
    with pytest.raises(hr.QueryError, match="transformWithStateInPandas does not take"):
        grouped.transformWithStateInPandas(Async(True), OUTPUT, "Update", "None")
