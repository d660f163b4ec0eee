"""Protects the plan of a join: its output, what is sent over the wire, whose watermarks it goes by, and
what is refused before anything runs, with the way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError
from headrace.plan.spec import (
    TIME,
    WindowJoin,
)
from headrace.spark.build.joins.request import JoinRequest, Side
from headrace.spark.build.recipe import Blueprint, session_options
from headrace.spark.language.plans import operators_below, watermarks

pytestmark = pytest.mark.spark

WINDOW = hr.tumbling("10 seconds")


@pytest.fixture(scope="module")
def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


@pytest.fixture(scope="module")
def people(rate: DataFrame) -> hr.Stream:
    df = rate.selectExpr("value as id", "string(value) as name", "timestamp as seen", "int(value) as age")
    return hr.stream(df).withWatermark("seen", "4 seconds")


@pytest.fixture(scope="module")
def sales(rate: DataFrame) -> hr.Stream:
    df = rate.selectExpr(
        "int(value) as seller", "timestamp as opened", "string(value) as title", "decimal(value) as price"
    )
    return hr.stream(df).withWatermark("opened", "2 seconds")


@pytest.fixture(scope="module", autouse=True)
def _ended(spark: SparkSession) -> Iterator[None]:
    yield
    coordinator: Any = getattr(spark.sparkContext, "_headrace_coordinator", None)
    if coordinator is not None:
        coordinator.close()


def drawn(left: hr.Stream, right: hr.Stream, on: Any, how: Any = "inner") -> Blueprint:
    request = JoinRequest(Side(left.df, left.time), Side(right.df, right.time), on, WINDOW, how, None)
    return request.draw(session_options(left.df.sparkSession))


def refused(build: Any, *words: str) -> None:
    with pytest.raises(QueryError) as error:
        build()
    text = str(error.value)
    assert all(word in text for word in words), text


def test_keys_come_once_then_the_window_then_both_sides(people: hr.Stream, sales: hr.Stream) -> None:
    out = people.join(sales, on=[("id", "seller")], window=WINDOW)
    window = "window:struct<start:timestamp,end:timestamp>"
    rest = "name:string,seen:timestamp,age:int,opened:timestamp,title:string,price:decimal(10,0)"
    assert out.schema.simpleString() == f"struct<id:bigint,{window},{rest}>"
    assert out.isStreaming
    assert operators_below(out) == ["join-1"]


def test_columns_of_equal_type_share_an_input_and_the_event_time_needs_none(
    people: hr.Stream, sales: hr.Stream
) -> None:
    spec = drawn(people, sales, [("id", "seller")]).spec
    assert [(field.name, field.type) for field in spec.inputs] == [
        ("v0", "string"),
        ("v1", "int32"),
        ("v2", "decimal(10,0)"),
    ]
    assert isinstance(spec.work, WindowJoin)
    assert [(field.label, field.name) for field in spec.work.left] == [
        ("name", "v0"),
        ("seen", TIME),
        ("age", "v1"),
    ]
    assert [(field.label, field.name) for field in spec.work.right] == [
        ("opened", TIME),
        ("title", "v0"),
        ("price", "v2"),
    ]
    assert [(field.name, field.type) for field in spec.keys] == [("k0", "int64")]


def test_it_goes_by_the_watermarks_of_both_sides(people: hr.Stream, sales: hr.Stream) -> None:
    blueprint = drawn(people, sales, [("id", "seller")])
    assert blueprint.spec.delays_ms == (4000, 2000)
    marks = [mark.node for stream in (people, sales) for mark in watermarks(stream.df)]
    assert list(blueprint.times.nodes) == marks
    assert len(watermarks(people.join(sales, on=[("id", "seller")], window=WINDOW))) == 2


def test_a_stream_may_be_joined_with_itself(people: hr.Stream) -> None:
    other = hr.Stream(people.df.select("id", F.col("name").alias("other"), "seen").drop("name"), "seen")
    renamed = hr.Stream(other.df.withColumnRenamed("seen", "again"), "again")
    blueprint = drawn(people, renamed, "id")
    assert blueprint.spec.delays_ms == (4000,)
    out = people.join(renamed, on="id", window=WINDOW, how="full")
    assert out.columns == ["id", "window", "name", "seen", "age", "other", "again"]


def test_structs_pass_through(people: hr.Stream, rate: DataFrame) -> None:
    df = rate.selectExpr(
        "named_struct('x', value) as k", "timestamp as t", "named_struct('a', 1, 'b', 'x') as s"
    )
    left = hr.stream(df).withWatermark("t", "1 second")
    right = hr.Stream(left.df.selectExpr("k", "t as u", "s as z"), "u")
    out = left.join(right, on="k", window=WINDOW, how="left")
    assert out.schema["k"].dataType == df.schema["k"].dataType
    assert out.schema["s"].dataType.simpleString() == "struct<a:int,b:string>"
    assert out.schema["z"].dataType.simpleString() == "struct<a:int,b:string>"


def test_a_downstream_operator_builds_on_it(people: hr.Stream, sales: hr.Stream) -> None:
    out = people.join(sales, on=[("id", "seller")], window=WINDOW)
    counted = hr.stream(out).groupBy("id", hr.tumbling("1 minute", on="window")).agg(n=hr.count())
    assert operators_below(counted) == ["aggregate-2", "join-1"]


def test_both_streams_need_a_watermark(people: hr.Stream, sales: hr.Stream, rate: DataFrame) -> None:
    bare = hr.stream(rate.selectExpr("value as id", "timestamp as at"))
    refused(lambda: people.join(bare, on="id", window=WINDOW), "right stream", "withWatermark")
    refused(lambda: bare.join(people, on="id", window=WINDOW), "left stream", "withWatermark")


def test_what_is_not_a_join_is_refused(people: hr.Stream, sales: hr.Stream) -> None:
    pair = [("id", "seller")]
    refused(lambda: people.join(sales.df, on=pair, window=WINDOW), "DataFrame", "hr.stream")
    refused(lambda: people.join(sales, on=pair, window="10 seconds"), "10 seconds", "hr.tumbling")
    refused(lambda: people.join(sales, on=pair, window=WINDOW, how="semi"), "semi", "full")
    refused(lambda: people.join(sales, on=("id", "seller"), window=WINDOW), "on=", "<left>")
    refused(lambda: people.join(sales, on=[("id",)], window=WINDOW), "pair")
    refused(lambda: people.join(sales, on=[], window=WINDOW), "needs a key")
    refused(lambda: people.join(sales, on="id", window=WINDOW), "right stream", "no column id")


def test_keys_that_do_not_compare_are_refused(people: hr.Stream, sales: hr.Stream) -> None:
    refused(lambda: people.join(sales, on=[("id", "title")], window=WINDOW), "bigint", "string", "cast")
    refused(lambda: people.join(sales, on=[("id", "opened")], window=WINDOW), "bigint", "timestamp", "cast")


def test_names_that_both_have_are_refused(people: hr.Stream, sales: hr.Stream) -> None:
    renamed = hr.Stream(sales.df.withColumnRenamed("title", "Name"), "opened")
    refused(lambda: people.join(renamed, on=[("id", "seller")], window=WINDOW), "Name", "rename")
    refused(lambda: people.join(people, on="id", window=WINDOW), "name", "left stream", "right stream")
    clash = hr.Stream(sales.df.withColumnRenamed("title", "window"), "opened")
    refused(lambda: people.join(clash, on=[("id", "seller")], window=WINDOW), "called window", "rename")


def test_values_of_any_type_are_carried_and_maps_are_no_keys(people: hr.Stream, sales: hr.Stream) -> None:
    listed = hr.Stream(sales.df.withColumn("tags", F.array("title")), "opened")
    out = people.join(listed, on=[("id", "seller")], window=WINDOW)
    assert out.schema["tags"].dataType.simpleString() == "array<string>"
    mapped = [
        hr.Stream(side.df.withColumn("m", F.create_map(F.lit(1), F.lit(2))), side.time)
        for side in (people, sales)
    ]
    refused(lambda: mapped[0].join(mapped[1], on="m", window=WINDOW), "key m", "map<int,int>")


def test_one_operator_on_both_sides_is_refused(people: hr.Stream) -> None:
    totals = people.groupBy("id", hr.tumbling("1 second")).agg(n=hr.count())
    left = totals.select("id", "n", F.col("window").alias("w"))
    right = totals.select("id", F.col("n").alias("m"), F.col("window").alias("w"))
    window = hr.tumbling("10 seconds", on="w")
    refused(
        lambda: hr.stream(left).join(hr.stream(right), on="id", window=window), "aggregate-1", "both sides"
    )
