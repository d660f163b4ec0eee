"""Protects rows that are combined before the shuffle in a running query: results and counted rows are those
of the rows themselves, and the setting may change between two runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from streaming_case import Case

import headrace as hr
from headrace.spark.build.explain import explained

pytestmark = pytest.mark.spark

COMBINE = "spark.headrace.combine"


@pytest.fixture
def combining(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.conf.unset(COMBINE)


def per_window(case: Case, *keys: str) -> DataFrame:
    rows = hr.stream(case.source()).name("all").withWatermark("ts", "0 seconds")
    kept = rows.groupBy(*keys, hr.tumbling("10 seconds")).agg(
        n=hr.count(), known=hr.count("user"), total=hr.sum("amount"), last=hr.max("ts")
    )
    start, last = F.unix_seconds("window.start"), F.unix_seconds("last")
    return kept.select(*keys, start.alias("start"), "n", "known", "total", last.alias("last"))


def feed_all(case: Case) -> None:
    case.feed(("a", 1, 1.0), (None, 2, 2.0), ("b", 11, 4.0), ("a", 3, 8.0))
    case.feed(("a", 12, 1.0), ("a", 4, 100.0), ("b", 21, 1.0))  # 4 is late


@pytest.mark.parametrize("setting", ["auto", "off"])
def test_a_window_without_keys(case: Case, combining: SparkSession, setting: str) -> None:
    combining.conf.set(COMBINE, setting)
    feed_all(case)
    df = per_window(case)
    assert ("before" in explained(df)) is (setting == "auto")
    writer = df.writeStream.option("checkpointLocation", str(case.checkpoint))
    got: list[tuple[int, ...]] = []
    query = (
        writer.foreachBatch(lambda rows, number: got.extend((number, *row) for row in rows.collect()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert got == [(0, 0, 3, 2, 11.0, 3), (1, 10, 2, 2, 5.0, 12)]
    batches = hr.progress(query)["all"]
    assert [(batch.rows_in, batch.late_rows) for batch in batches if batch.rows_in] == [(4, 0), (3, 1)]


def test_the_setting_may_change(case: Case, combining: SparkSession) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0), ("a", 3, 4.0))
    combining.conf.set(COMBINE, "on")
    assert case.run(per_window(case, "user")) == []
    case.feed(("a", 4, 8.0))
    combining.conf.set(COMBINE, "off")
    assert case.run(per_window(case, "user")) == []
    case.kill_hosts()
    case.feed(("a", 5, 16.0), ("c", 10, 1.0))
    combining.conf.set(COMBINE, "on")
    assert case.run(per_window(case, "user")) == [(2, "a", 0, 4, 4, 29.0, 5), (2, "b", 0, 1, 1, 2.0, 2)]
