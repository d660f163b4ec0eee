"""Protects the NEXMark source in Spark: the generator's rows arrive unchanged, a failed batch is replayed
exactly, a restart continues where the last run stopped, and the clock paces a throttled stream.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace.errors import QueryError
from headrace.generators.nexmark import VIEWS, NexmarkConfig, NexmarkGenerator
from headrace.generators.nexmark.options import NexmarkOptions
from headrace.spark.sources.nexmark import NexmarkStreamReader, register, split
from headrace.testing import ManualClock

pytestmark = pytest.mark.spark

SETTINGS = {"seed": 9, "outOfOrderGroup": 40, "lateProbability": 0.1}
GENERATOR = NexmarkGenerator(NexmarkConfig(seed=9, out_of_order_group=40, late_probability=0.1))

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    running = SparkSession.getActiveSession()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = running or (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    register(session)
    yield session
    if running is None:
        session.stop()


def rows_of(frame: DataFrame) -> Rows:
    return frame.toArrow().to_pylist()


def run(
    spark: SparkSession, checkpoint: Path, batches: dict[int, Rows], fail_at: int = -1, **options: Any
) -> None:
    """Run to the end of `events`, keeping each batch's rows; `fail_at` breaks after it was seen."""

    def keep(frame: DataFrame, batch: int) -> None:
        batches[batch] = rows_of(frame)
        if batch == fail_at:
            raise RuntimeError("the sink broke")

    reader = spark.readStream.format("nexmark").options(**SETTINGS, **options)
    writer = reader.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("view", VIEWS)
def test_a_batch_read_is_what_the_generator_makes(spark: SparkSession, view: str) -> None:
    reader = spark.read.format("nexmark").options(**SETTINGS, view=view, events=700, partitions=3)
    assert rows_of(reader.load()) == GENERATOR.batch(view, 0, 700).to_pylist()


def test_null_structs_stay_null_inside_spark(spark: SparkSession) -> None:
    frame = spark.read.format("nexmark").options(events=500).load()
    counts = frame.selectExpr("count(person)", "count(auction.id)", "count(bid.extra)", "count(dateTime)")
    assert tuple(counts.first()) == (10, 30, 460, 500)


def test_no_events_is_an_empty_frame(spark: SparkSession) -> None:
    assert spark.read.format("nexmark").options(events=0).load().count() == 0


def test_a_broken_batch_is_replayed_and_a_restart_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    first: dict[int, Rows] = {}
    with pytest.raises(StreamingQueryException, match="the sink broke"):
        run(spark, tmp_path / "c", first, fail_at=1, events=1000, eventsPerBatch=300, partitions=1)
    second: dict[int, Rows] = {}
    run(spark, tmp_path / "c", second, events=1000, eventsPerBatch=250, partitions=3)

    assert list(first) == [0, 1]
    assert list(second) == [1, 2, 3]
    assert second[1] == first[1]
    assert [len(rows) for rows in (first | second).values()] == [300, 300, 250, 150]
    assert list(chain(*(first | second).values())) == GENERATOR.batch("all", 0, 1000).to_pylist()

    third: dict[int, Rows] = {}
    run(spark, tmp_path / "c", third, events=1200)
    assert third == {4: GENERATOR.batch("all", 1000, 1200).to_pylist()}


def test_mistakes_are_explained(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="unknown option bogus"):
        spark.read.format("nexmark").options(bogus=1).load()
    with pytest.raises(AnalysisException, match=r"spark\.read needs an end"):
        spark.read.format("nexmark").load().count()
    with pytest.raises(StreamingQueryException, match="AvailableNow needs an end"):
        run(spark, tmp_path / "c", {})


def latest(reader: NexmarkStreamReader, at: int) -> int:
    return reader.latestOffset({"events": at}, reader.getDefaultReadLimit())["events"]


def test_a_throttled_stream_follows_the_clock_from_where_it_starts() -> None:
    clock = ManualClock(5_000)
    options = NexmarkOptions.parse({"throttle": "true", "rate": "100", "eventsPerBatch": "150"})
    reader = NexmarkStreamReader(options, clock)
    assert latest(reader, 70) == 70
    clock.advance_ms(1000)
    assert latest(reader, 70) == 170
    assert latest(reader, 170) == 170
    clock.advance_ms(9000)
    assert latest(reader, 170) == 320
    with pytest.raises(QueryError, match="throttle"):
        NexmarkStreamReader(
            NexmarkOptions.parse({"throttle": "true", "events": "5"})
        ).prepareForTriggerAvailableNow()


def test_offsets_stop_at_the_limit_and_at_the_end() -> None:
    reader = NexmarkStreamReader(NexmarkOptions.parse({"events": "250", "eventsPerBatch": "100"}))
    assert [latest(reader, at) for at in (0, 100, 200, 250, 300)] == [100, 200, 250, 250, 300]
    assert reader.latestOffset({"events": 0}, ReadAllAvailable()) == {"events": 250}
    endless = NexmarkStreamReader(NexmarkOptions.parse({"eventsPerBatch": "100"}))
    assert endless.latestOffset({"events": 50}, ReadAllAvailable()) == {"events": 150}


def test_ranges_are_contiguous_and_never_empty() -> None:
    assert [(part.start, part.stop) for part in split(5, 15, 3)] == [(5, 8), (8, 11), (11, 15)]
    assert [(part.start, part.stop) for part in split(5, 7, 4)] == [(5, 6), (6, 7)]
    assert split(5, 5, 4) == []
