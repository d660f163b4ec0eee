"""Protects what is refused when an operator is built, before anything runs, and that each error names its
cause and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError, SettingError

pytestmark = pytest.mark.spark


WRONG_WINDOWS = [
    (hr.sliding("1 minute", "2 minutes"), ("1 minute", "slide by 2 minutes", "hr.tumbling")),
    (hr.sliding("1 minute", "0 seconds"), ("stand still", "above zero")),
    (hr.sliding("0 seconds", "1 minute"), ("no width",)),
    (hr.sliding("1 hour", "1 month"), ("slide", "no fixed length")),
    (hr.sliding("10 seconds", "3000001 microseconds"), ("10,000,000 slices", "multiple of the slide")),
    (hr.tumbling("1 minute", lateness="-1 seconds"), ("lateness", "below zero")),
    (hr.sliding("1 minute", "1 second", lateness="soon"), ("lateness", "soon")),
]


@pytest.fixture(scope="module")
def rate(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate").load()
    return source.selectExpr(
        "timestamp as ts",
        "value as user",
        "value * 0.5 as amount",
        "string(value) as `the text`",
        "string(value) collate UTF8_LCASE as folded",
        "named_struct('x', 1, 'c', string(value) collate UNICODE) as st",
        "array(1) as arr",
        "map(1, 2) as m",
        "interval '1' month as ym",
        "parse_json('1') as v",
        "cast(timestamp as timestamp_ntz) as wall",
    )


@pytest.fixture
def timed(rate: DataFrame) -> hr.Stream:
    return hr.stream(rate).withWatermark("ts", "10 seconds")


def refused(build: Any, *words: str) -> None:
    with pytest.raises(QueryError) as error:
        build()
    text = str(error.value)
    assert all(word in text for word in words), text


def test_batch_connect_and_other_frames_are_refused(spark: SparkSession) -> None:
    refused(lambda: hr.stream(spark.range(1)), "batch DataFrame", "readStream")
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    refused(lambda: hr.stream(remote), "Spark Connect", "classic")
    refused(lambda: hr.stream([1]), "list")


def test_unknown_columns_name_the_close_ones(rate: DataFrame, timed: hr.Stream) -> None:
    grouped = hr.stream(rate).groupBy("user")
    refused(lambda: grouped.agg(x=hr.sum("amont")), "no column amont", "did you mean amount?", "x: sum")
    refused(lambda: hr.stream(rate).groupBy("usr").agg(n=hr.count()), "usr", "user", "groupBy")
    refused(lambda: grouped.agg(x=hr.sum(F.col("amunt") + 1)), "amunt", "amount")
    refused(lambda: grouped.agg(x=hr.sum("st.q")), "q")
    refused(lambda: hr.stream(rate).withWatermark("t", "1 second"), "no column t")
    refused(lambda: timed.groupBy(hr.tumbling("1 hour", on="tss")).agg(n=hr.count()), "tss", "event time")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("folded", ["string collate UTF8_LCASE"]),
        ("st", ["st.c", "collate UNICODE"]),
        ("m", ["map<int,int>"]),
        ("v", ["variant"]),
    ],
)
def test_keys_of_other_types_are_refused_by_name(rate: DataFrame, key: str, words: list[str]) -> None:
    refused(lambda: hr.stream(rate).groupBy(key).agg(n=hr.count()), "key " + key, *words)


def test_inputs_of_other_types_are_refused_by_name(rate: DataFrame, timed: hr.Stream) -> None:
    grouped = hr.stream(rate).groupBy("user")
    refused(lambda: grouped.agg(x=hr.sum("arr")), "x: Spark has no sum of arr", "array<int>")
    refused(lambda: grouped.agg(x=hr.max(F.rand())), "Non-deterministic")
    refused(lambda: grouped.agg(x=hr.max("folded")), "max of folded", "UTF8_LCASE")
    refused(lambda: grouped.agg(x=hr.min("st")), "min of st", "struct<")
    refused(lambda: timed.groupBy("user").agg(x=hr.max("arr")), "max of arr", "array<int>")


def test_emit_and_windows_that_cannot_work(rate: DataFrame, timed: hr.Stream) -> None:
    plain = hr.stream(rate)
    minute = hr.tumbling("1 minute", on="ts")
    refused(lambda: plain.groupBy(minute).agg(n=hr.count()), "watermark", 'emit="changes"')
    refused(lambda: timed.groupBy("user").agg(emit="final", n=hr.count()), "needs a window")
    refused(lambda: timed.groupBy("user").agg(emit="sometimes", n=hr.count()), "sometimes")
    changes = {"emit": "changes", "n": hr.count()}
    refused(lambda: plain.groupBy(hr.tumbling("1 minute")).agg(**changes), "event time")
    refused(lambda: plain.groupBy("user").agg(x=hr.first("amount")), "first of amount", "event time")
    refused(lambda: timed.groupBy(minute, minute).agg(n=hr.count()), "one window")
    refused(lambda: timed.groupBy(hr.tumbling("1 month")).agg(n=hr.count()), "no fixed length")
    refused(lambda: timed.groupBy(hr.tumbling("soon")).agg(n=hr.count()), "soon")
    refused(lambda: timed.groupBy(hr.tumbling("0 seconds")).agg(n=hr.count()), "no width")
    refused(
        lambda: timed.groupBy(hr.tumbling("1 hour", on="amount")).agg(n=hr.count()), "amount", "decimal"
    )
    for window, words in WRONG_WINDOWS:
        refused(lambda window=window: timed.groupBy(window).agg(n=hr.count()), *words)
    refused(lambda: timed.groupBy(hr.tumbling("1 hour", on="wall")).agg(n=hr.count()), "no time zone")


def test_a_second_watermark_is_refused_with_the_way_out(timed: hr.Stream) -> None:
    refused(lambda: timed.withWatermark("ts", "1 second"), "already", "on='window'")
    counts = timed.groupBy(hr.tumbling("1 minute")).agg(n=hr.count())
    refused(lambda: hr.stream(counts).withWatermark("window", "1 second"), "already")
    refused(lambda: hr.stream(timed.df.select("user")).withWatermark("user", "1 second"), "already")


def test_bad_delays_and_event_time_types_are_refused(rate: DataFrame) -> None:
    refused(lambda: hr.stream(rate).withWatermark("ts", "soon"), "soon")
    refused(lambda: hr.stream(rate).withWatermark("user", "1 second"), "user")


def test_what_agg_is_given_must_be_aggregates_with_names_of_their_own(rate: DataFrame) -> None:
    grouped = hr.stream(rate).groupBy("user")
    refused(lambda: grouped.agg(), "at least one")
    refused(lambda: grouped.agg(n=F.count("*")), "n is", "hr.count()")
    refused(lambda: grouped.agg(user=hr.count()), "two output columns", "user")
    refused(lambda: grouped.agg(USER=hr.count()), "two output columns")
    refused(lambda: grouped.agg(n=hr.sum(F.sum("amount"))), "one value per row", "hr.sum")
    windowed = hr.stream(rate).groupBy(F.window("ts", "1 minute"))
    refused(lambda: windowed.agg(n=hr.count()), "one value per row", "hr.tumbling")
    refused(lambda: hr.stream(rate).groupBy(F.explode("arr")).agg(n=hr.count()), "one value per row")
    refused(lambda: hr.stream(rate).groupBy("*").agg(n=hr.count()), "one value per row")


def test_two_operators_of_one_name_are_refused(rate: DataFrame) -> None:
    one = hr.stream(rate).groupBy("user").name("totals").agg(n=hr.count())
    refused(lambda: hr.stream(one).name("totals").groupBy("n").agg(m=hr.count()), "totals", ".name(")
    for bad in ("", "  ", "a\nb", "x" * 101):
        refused(lambda bad=bad: hr.stream(rate).name(bad), "not a name")


@pytest.fixture
def misspelt(spark: SparkSession) -> Iterator[str]:
    spark.conf.set("spark.headrace.memroy", "1g")
    yield "spark.headrace.memroy"
    spark.conf.unset("spark.headrace.memroy")


def test_a_misspelt_setting_stops_the_build(rate: DataFrame, misspelt: str) -> None:
    with pytest.raises(SettingError, match=misspelt):
        hr.stream(rate).groupBy("user").agg(n=hr.count())


def test_spark_state_that_delays_rows_below_a_window_is_refused(
    spark: SparkSession, rate: DataFrame, request: pytest.FixtureRequest
) -> None:
    """Its rows come a batch later, and the window of a Python worker would drop them as late."""
    spark.conf.set("spark.headrace.bridge", "python")
    request.addfinalizer(lambda: spark.conf.unset("spark.headrace.bridge"))
    marked = rate.select("ts", "user").withWatermark("ts", "10 seconds")
    minutes = marked.groupBy(F.window("ts", "1 minute").alias("w")).count()
    window = hr.tumbling("5 minutes", on="w")
    refused(
        lambda: hr.stream(minutes).groupBy(window).agg(n=hr.sum("count")),
        "aggregate-1",
        "(Aggregate)",
        "spark.headrace.bridge=jvm",
    )
    other = marked.withColumnsRenamed({"ts": "ts2", "user": "user2"})
    near = F.expr("user = user2 and ts2 between ts and ts + interval 30 seconds")
    joined = marked.join(other, near, "leftOuter").select("user", "ts")
    refused(
        lambda: hr.stream(joined).groupBy(hr.tumbling("5 minutes", on="ts")).agg(n=hr.count()), "(Join)"
    )
    running = hr.stream(minutes).groupBy("w").agg(n=hr.max("count"))
    refused(lambda: hr.stream(running).groupBy(window).agg(n=hr.count()), "aggregate-2", "(Aggregate)")


def test_spark_state_that_passes_rows_on_in_their_batch_is_fine_below_a_window(
    spark: SparkSession, rate: DataFrame
) -> None:
    marked = rate.select("ts", "user").withWatermark("ts", "10 seconds")
    known = spark.range(10).groupBy("id").count()
    for below in (marked.dropDuplicates(["user"]), marked.join(known, marked.user == known.id)):
        hr.stream(below).groupBy(hr.tumbling("5 minutes", on="ts")).agg(n=hr.count())
