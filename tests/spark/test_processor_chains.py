"""Protects processors that begin with state and processors below other operators: `initialState` and
`eventTimeColumnName` give Spark's rows, and what does not fit is refused by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor_case import FAR, prepared, random_batches, run, write_batches
from processor_classes import COUNTED, Delayed, SeededCount, SeededCountFrames
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark

DELAYED = "id string, at timestamp, n long"


@pytest.fixture(autouse=True)
def engines(spark: SparkSession) -> Iterator[None]:
    with prepared(spark, sys.modules[__name__]):
        yield


def first_state(spark: SparkSession) -> DataFrame:
    rows = [("u0", 100), ("u1", 200), ("u1", 30), ("absent", 7), (None, 1)]
    return spark.createDataFrame(rows, "user string, start long")


@pytest.mark.parametrize("style", ["row", "pandas"])
def test_initial_state_is_sparks(spark: SparkSession, tmp_path: Path, style: str) -> None:
    batches = [[*random_batches(3)[0], {"id": "u0", "v": 1, "ts": FAR}, {"id": None, "v": 1, "ts": FAR}]]
    batches += [[{"id": name, "v": 2, "ts": FAR} for name in ("u0", "u1", "absent", "new")]]
    grouped = first_state(spark).groupBy("user")

    def counted(keyed: Any) -> DataFrame:
        method = keyed.transformWithState if style == "row" else keyed.transformWithStateInPandas
        processor = SeededCount() if style == "row" else SeededCountFrames()
        frame: DataFrame = method(processor, COUNTED, "Update", "None", initialState=grouped)
        return frame

    rows = {}
    for part in (0, 1):  # a restart in between: initial state comes once
        write_batches(tmp_path / "in", batches[part : part + 1], part)
        for name, keyed in (("ours", lambda df: hr.stream(df)), ("theirs", lambda df: df)):
            got = run(spark, tmp_path, name, lambda df, keyed=keyed: counted(keyed(df).groupBy("id")))
            rows[name] = rows.get(name, got) + got
    assert ("absent", 8) in rows["ours"]
    assert rows["ours"] == rows["theirs"]


def windowed(spark_side: bool, rows: DataFrame) -> DataFrame:
    if spark_side:
        counts = rows.groupBy("id", F.window("at", "30 seconds")).agg(F.sum("n").alias("n"))
    else:
        counts = hr.stream(rows).groupBy("id", hr.tumbling("30 seconds")).agg(n=hr.sum("n"))
    return counts.select("id", F.col("window.start"), "n")


def test_a_window_over_a_processor_is_sparks(spark: SparkSession, tmp_path: Path) -> None:
    far = {"id": "end", "v": 1, "ts": FAR}
    write_batches(tmp_path / "in", [*random_batches(7), [far], [{**far, "ts": "2032-01-01T00:00:00Z"}]])

    def stream(df: DataFrame, spark_side: bool) -> DataFrame:
        keyed = df.withWatermark("ts", "10 seconds")
        keyed = keyed.groupBy("id") if spark_side else hr.stream(keyed).groupBy("id")
        delayed = keyed.transformWithState(
            Delayed(), DELAYED, "Append", "EventTime", eventTimeColumnName="at"
        )
        return windowed(spark_side, delayed)

    ours = run(spark, tmp_path, "ours", lambda df: stream(df, False), mode="append")
    theirs = run(spark, tmp_path, "theirs", lambda df: stream(df, True), mode="append")
    assert len(ours) > 5
    assert {row: n for row, n in ours.items() if row[0] != "end"} == {
        row: n for row, n in theirs.items() if row[0] != "end"
    }


def test_a_processor_over_a_processor_is_sparks(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", random_batches(11))

    def stream(df: DataFrame, keyed: Any) -> DataFrame:
        low = keyed(df.withWatermark("ts", "10 seconds")).transformWithState(
            Delayed(), DELAYED, "Append", "EventTime", eventTimeColumnName="at"
        )
        high: DataFrame = keyed(low).transformWithState(
            Delayed("at"), DELAYED, "Append", "EventTime", eventTimeColumnName="at"
        )
        return high

    ours = run(
        spark, tmp_path, "ours", lambda df: stream(df, lambda one: hr.stream(one).groupBy("id")), "append"
    )
    theirs = run(spark, tmp_path, "theirs", lambda df: stream(df, lambda one: one.groupBy("id")), "append")
    assert ours
    assert ours == theirs


def test_rows_before_the_watermark_fail_the_query(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [[{"id": "a", "v": 1, "ts": FAR}]] * 3)

    def stream(df: DataFrame) -> DataFrame:
        keyed = hr.stream(df).withWatermark("ts", "10 seconds").groupBy("id")
        return keyed.transformWithState(
            Delayed(back_ms=10**9), DELAYED, "Append", "None", eventTimeColumnName="at"
        )

    with pytest.raises(StreamingQueryException, match="EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED"):
        run(spark, tmp_path, "ours", stream, mode="append")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"initialState": 5}, "initialState is a int"),
        ({"eventTimeColumnName": "n"}, "not a timestamp of outputStructType"),
        ({"eventTimeColumnName": "at"}, "needs a watermark"),
    ],
)
def test_what_does_not_fit_is_refused(spark: SparkSession, arguments: Any, message: str) -> None:
    source = spark.readStream.format("rate").load().selectExpr("'a' AS id", "value AS v", "timestamp AS ts")
    with pytest.raises(QueryError, match=message):
        hr.stream(source).groupBy("id").transformWithState(
            Delayed(), DELAYED, "Append", "None", **arguments
        )


def test_initial_state_of_other_keys_is_refused(spark: SparkSession) -> None:
    source = spark.readStream.format("rate").load().selectExpr("'a' AS id", "value AS v")
    grouped = first_state(spark).groupBy("start")
    with pytest.raises(QueryError, match="grouped by bigint, and the stream by string"):
        hr.stream(source).groupBy("id").transformWithState(
            SeededCount(), COUNTED, "Update", "None", initialState=grouped
        )


def test_without_the_jvm_operator_initial_state_is_refused(spark: SparkSession) -> None:
    source = spark.readStream.format("rate").load().selectExpr("'a' AS id", "value AS v")
    before = spark.conf.get("spark.headrace.bridge")
    spark.conf.set("spark.headrace.bridge", "python")
    try:
        with pytest.raises(QueryError, match="initialState needs the JVM operator"):
            hr.stream(source).groupBy("id").transformWithState(
                SeededCount(), COUNTED, "Update", "None", initialState=first_state(spark).groupBy("user")
            )
    finally:
        spark.conf.set("spark.headrace.bridge", before)
