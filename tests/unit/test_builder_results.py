"""Protects the projections around the host: for every type, what goes over the wire and comes back equals
Spark's own batch groupBy on the same rows. A stand-in in plain Python plays the host."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from standin import standin_task

import headrace as hr
from headrace.spark.build.aggregate import AggregateRequest, Grouping
from headrace.spark.build.recipe import assemble, session_options
from headrace.spark.language.windows import Tumbling

pytestmark = pytest.mark.spark

SCHEMA = """
  ts timestamp, wall timestamp_ntz, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, d double,
  dec decimal(10,2), wide decimal(30,18), s string, b binary, yes boolean, day date,
  span interval day to second, hours interval hour to minute,
  st struct<x: int, y: struct<z: double, w: string>>, tags array<int>
"""
NAN_BITS = [math.nan, -math.nan]
ROWS = 60


def _row(rng: random.Random, index: int) -> tuple[Any, ...]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    number = rng.randrange(-3, 4)
    real = rng.choice([0.0, -0.0, *NAN_BITS, 1.5, -2.25])
    nested = maybe({"z": maybe(real), "w": maybe(rng.choice("ab"))})
    return (
        dt.datetime(2024, 3, 10, 1, 0, 0, index, tzinfo=dt.UTC) + dt.timedelta(minutes=rng.randrange(240)),
        dt.datetime(2024, 3, 10, 1, 0, 0, index) + dt.timedelta(minutes=rng.randrange(240)),
        maybe(number),
        maybe(number * 100),
        maybe(number * 100_000),
        maybe(number * 10**12),
        maybe(real),
        maybe(rng.choice([0.0, -0.0, math.nan, 0.5, -1.25])),
        maybe(Decimal(number) / 4),
        maybe(Decimal(number) / Decimal(8) + Decimal("0.000000000000000007")),
        maybe(rng.choice(["", "a", "é", "zz"])),
        maybe(rng.choice([b"", b"\x00", b"\xff"])),
        maybe(rng.random() < 0.5),
        maybe(dt.date(2024, 1, 1) + dt.timedelta(days=number)),
        maybe(dt.timedelta(seconds=number, microseconds=7)),
        maybe(dt.timedelta(minutes=number)),
        maybe({"x": maybe(number), "y": nested}),
        maybe([number]),
    )


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    rng = random.Random(20)
    made = spark.createDataFrame([_row(rng, index) for index in range(ROWS)], SCHEMA)
    return made.localCheckpoint()


def ours(df: DataFrame, *keys: Any, time: str | None = None, **aggregates: Any) -> DataFrame:
    """The operator over a batch DataFrame: the plan is the same, without the guard of `hr.stream`."""
    emit = "changes" if any(isinstance(key, Tumbling) for key in keys) else None
    request = AggregateRequest(Grouping(df, time, keys, None), emit, tuple(aggregates.items()))
    blueprint = request.draw(session_options(df.sparkSession))
    task = standin_task(blueprint.spec)
    return assemble(blueprint, lambda rows: rows.mapInArrow(task, blueprint.schema))


def canonical(df: DataFrame) -> list[str]:
    return sorted(repr(_plain(row.asDict(recursive=True))) for row in df.collect())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}")
    return value


def assert_same(mine: DataFrame, sparks: DataFrame) -> None:
    assert [(f.name, f.dataType.simpleString()) for f in mine.schema] == [
        (f.name, f.dataType.simpleString()) for f in sparks.schema
    ]
    assert canonical(mine) == canonical(sparks)


KEYS = [
    ["f", "d"],
    ["i8", "i16", "i32", "i64"],
    ["dec", "wide"],
    ["s", "b", "yes"],
    ["day", "span", "hours"],
    ["ts", "wall"],
    ["st"],
    ["st.y.z"],
]


@pytest.mark.parametrize("keys", KEYS)
def test_keys_come_back_as_spark_groups_them(rows: DataFrame, keys: list[str]) -> None:
    assert_same(ours(rows, *keys, n=hr.count()), rows.groupBy(*keys).agg(F.count("*").alias("n")))


def test_expressions_and_no_keys_are_keys(rows: DataFrame) -> None:
    key = (F.col("i32") % 2).alias("odd")
    assert_same(ours(rows, key, n=hr.count("s")), rows.groupBy(key).agg(F.count("s").alias("n")))
    assert_same(ours(rows, n=hr.count(rows.i8)), rows.groupBy().agg(F.count("i8").alias("n")))


NUMBERS = ["i8", "i16", "i32", "i64", "f", "d", "dec", "wide"]
VALUES = [*NUMBERS, "s", "b", "yes", "day", "ts", "wall", "span", "hours"]


def _both(names: list[str], columns: list[str]) -> tuple[dict[str, Any], list[Column]]:
    pairs = [(name, column) for name in names for column in columns]
    mine = {f"{name}_{column}": getattr(hr, name)(column) for name, column in pairs}
    return mine, [getattr(F, name)(column).alias(f"{name}_{column}") for name, column in pairs]


def test_sums_and_means_have_sparks_values_and_types(rows: DataFrame) -> None:
    mine, sparks = _both(["sum", "avg", "mean"], [*NUMBERS, "span"])
    assert_same(ours(rows, "yes", **mine), rows.groupBy("yes").agg(*sparks))


def test_the_mean_of_an_interval_with_fewer_fields_is_a_whole_interval(rows: DataFrame) -> None:
    mine, sparks = _both(["sum", "avg"], ["hours"])
    assert_same(ours(rows, "yes", **mine), rows.groupBy("yes").agg(*sparks))


def test_strings_are_summed_as_doubles_without_losing_their_count(rows: DataFrame) -> None:
    text = rows.select("yes", F.col("i32").cast("string").alias("t"))
    mine, sparks = _both(["sum", "avg", "count"], ["t"])
    assert_same(ours(text, "yes", **mine), text.groupBy("yes").agg(*sparks))


def test_variances_follow_sparks_null_rules(rows: DataFrame) -> None:
    names = ["variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"]
    mine, sparks = _both(names, ["i32", "dec"])
    keyed = rows.where("i64 is null or i64 != 0")
    assert_same(ours(keyed, "i64", "s", **mine), keyed.groupBy("i64", "s").agg(*sparks))


def test_extremes_and_counts_of_every_type(rows: DataFrame) -> None:
    mine, sparks = _both(["min", "max", "count"], VALUES)
    assert_same(ours(rows, "yes", **mine), rows.groupBy("yes").agg(*sparks))
    mine, sparks = _both(["count"], ["st", "tags"])
    assert_same(ours(rows, "yes", **mine), rows.groupBy("yes").agg(*sparks))


def test_first_and_last_go_by_event_time(rows: DataFrame) -> None:
    mine, _ = _both(["first", "last"], VALUES)
    pairs = [("first", F.min_by), ("last", F.max_by)]
    sparks = [by(column, "ts").alias(f"{name}_{column}") for name, by in pairs for column in VALUES]
    assert_same(ours(rows, "yes", time="ts", **mine), rows.groupBy("yes").agg(*sparks))


@pytest.mark.long
@pytest.mark.parametrize(("width", "offset"), [("1 hour", "0 seconds"), ("90 minutes", "-7 minutes")])
def test_windows_are_sparks(rows: DataFrame, width: str, offset: str) -> None:
    some = rows.withColumn("ts", F.expr("if(i8 = 1, null, ts)"))
    for on in ("ts", "wall"):
        window = F.window(on, width, startTime=offset)
        mine = ours(some, "yes", hr.tumbling(width, on, offset=offset), n=hr.count(), top=hr.max("i32"))
        assert_same(
            mine, some.groupBy("yes", window).agg(F.count("*").alias("n"), F.max("i32").alias("top"))
        )


def test_a_window_column_is_the_event_time_of_the_next_window(rows: DataFrame) -> None:
    for on in ("ts", "wall"):
        small = rows.groupBy(F.window(on, "10 minutes")).agg(F.count("*").alias("n"))
        mine = ours(small, hr.tumbling("1 hour", "window"), n=hr.sum("n"))
        large = small.groupBy(F.window(F.window_time("window"), "1 hour")).agg(F.sum("n").alias("n"))
        assert_same(mine, large)
