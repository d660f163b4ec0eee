"""Protects the plan that an operator becomes: what is sent over the wire, shared accumulators, watermarks,
names, and that operators build on each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.plan.spec import Accumulator, OperatorSpec, Window
from headrace.spark.build.aggregate import AggregateRequest, Grouping
from headrace.spark.build.project import partition_of
from headrace.spark.build.recipe import Blueprint, session_options
from headrace.spark.build.session import ARROW_BYTES, ARROW_ROWS, LARGE, PLAIN
from headrace.spark.language.aggregates import Aggregate
from headrace.spark.language.plans import WATERMARK_KEY, operators_below, watermarks
from headrace.spark.task.evaluation import partition_of as task_partition_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rate(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate").load()
    return source.selectExpr(
        "timestamp as ts",
        "nullif(value, 1) as user",
        "int(value) as i",
        "decimal(value) as dec",
        "value % 3 as part",
    )


def drawn(
    df: DataFrame, *keys: Any, time: str | None = None, emit: Any = None, **aggregates: Any
) -> Blueprint:
    request = AggregateRequest(Grouping(df, time, keys, None), emit, tuple(aggregates.items()))
    return request.draw(session_options(df.sparkSession))


def kinds(spec: OperatorSpec) -> list[tuple[str, str | None, str]]:
    return [(acc.kind, acc.input, acc.type) for acc in spec.work.accumulators]


def test_equal_accumulators_and_inputs_are_sent_once(rate: DataFrame) -> None:
    spec = drawn(
        rate,
        "user",
        mean=hr.avg("i"),
        again=hr.avg(F.col("i")),
        values=hr.count("i"),
        spread=hr.variance("i"),
        other=hr.stddev_pop("i"),
        rows=hr.count(),
        star=hr.count("*"),
    ).spec
    assert [(field.name, field.type) for field in spec.inputs] == [("v0", "double")]
    assert kinds(spec) == [
        ("sum", "v0", "double"),
        ("count", "v0", "int64"),
        ("moments", "v0", "double"),
        ("count", None, "int64"),
    ]


def test_counting_alone_sends_a_boolean_and_nothing_for_what_is_never_null(rate: DataFrame) -> None:
    spec = drawn(
        rate.withColumn("one", F.lit(1)), "part", users=hr.count("user"), ones=hr.count("one")
    ).spec
    assert [(field.type, field.label) for field in spec.inputs] == [("bool", "user")]
    assert kinds(spec) == [("count", "v0", "int64"), ("count", None, "int64")]


def test_different_functions_of_one_name_are_not_shared(rate: DataFrame) -> None:
    plus, minus = (F.udf(lambda i, by=by: i + by, "int") for by in (1, -1))
    spec = drawn(rate, "user", a=hr.max(plus("i")), b=hr.max(minus("i")), c=hr.max(plus("i"))).spec
    assert len(spec.inputs) == 2


@pytest.mark.parametrize(
    ("ansi", "integers", "decimals"), [(True, "error", "error"), (False, "wrap", "null")]
)
def test_overflow_follows_ansi_mode(
    rate: DataFrame, ansi_mode: Any, ansi: bool, integers: Any, decimals: Any
) -> None:
    ansi_mode(ansi)
    spec = drawn(rate, "user", i=hr.sum("i"), d=hr.sum("dec")).spec
    assert spec.work.accumulators == (
        Accumulator("sum", "v0", "int64", integers),
        Accumulator("sum", "v1", "decimal(20,0)", decimals),
    )


@pytest.fixture
def ansi_mode(spark: SparkSession) -> Iterator[Any]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    yield lambda on: spark.conf.set("spark.sql.ansi.enabled", str(on).lower())
    spark.conf.set("spark.sql.ansi.enabled", before)


def test_partitions_are_ranges_of_unsigned_hashes(spark: SparkSession) -> None:
    hashes = [0, 1 << 54, -1, -(1 << 63), (1 << 63) - 1, 123456789 << 32]
    frame = spark.createDataFrame([(h,) for h in hashes], "h bigint")
    for partitions in (1, 3, 7, 1024):
        got = [row.p for row in frame.select(partition_of(F.col("h"), partitions).alias("p")).collect()]
        assert got == [task_partition_of(h, partitions) for h in hashes]


def test_windows_and_watermarks_reach_the_spec(rate: DataFrame) -> None:
    marked = rate.withWatermark("ts", "1 minute 30 seconds")
    blueprint = drawn(marked, hr.tumbling("1 day", offset="-6 hours"), time="ts", n=hr.count())
    assert blueprint.spec.window == Window(86_400_000_000, 64_800_000_000)
    assert (blueprint.spec.delays_ms, blueprint.spec.emit, blueprint.spec.timed) == (
        (90_000,),
        "final",
        True,
    )
    assert blueprint.times.nodes == (watermarks(marked)[0].node,)
    running = drawn(marked, "user", time="ts", n=hr.count()).spec
    assert (running.window, running.emit, running.timed) == (None, "changes", False)


def test_operators_build_on_each_other_and_share_the_watermark(
    rate: DataFrame, spark: SparkSession
) -> None:
    rows = hr.stream(rate).withWatermark("ts", "10 seconds").groupBy("user", hr.tumbling("1 minute"))
    small = rows.agg(n=hr.count())
    assert [f.name for f in small.schema.fields if WATERMARK_KEY in f.metadata] == ["window"]
    for on in ("window", "window.end", F.col("window.start")):
        large = hr.stream(small).groupBy(hr.tumbling("1 hour", on=on)).agg(n=hr.sum("n"))
        assert operators_below(large) == ["aggregate-2", "aggregate-1"]
        assert watermarks(large) == watermarks(small)
    assert large.columns == ["window", "n"]
    assert spark.conf.get("spark.sql.adaptive.streaming.stateless.enabled") == "false"


def test_windows_and_counts_are_never_null_as_spark_has_it(rate: DataFrame) -> None:
    rows = hr.stream(rate).withWatermark("ts", "10 seconds").groupBy("user", hr.tumbling("1 minute"))
    schema = rows.agg(n=hr.count(), v=hr.max("i")).schema
    assert [field.name for field in schema if field.nullable] == ["user", "v"]
    assert not any(field.nullable for field in schema["window"].dataType)


def test_arrow_batches_are_large_unless_values_are_long_or_the_user_says_so(spark: SparkSession) -> None:
    def built(session: SparkSession, *aggregates: Aggregate) -> dict[str, str]:
        rows = session.readStream.format("rate").load().selectExpr("value as k", "string(value) as v")
        for number, aggregate in enumerate(aggregates):
            hr.stream(rows).name(f"op{number}").groupBy("k").agg(n=aggregate)
        return {name: str(session.conf.get(name)) for name in LARGE}

    assert built(spark.newSession(), hr.count(), hr.sum("k")) == LARGE
    assert built(spark.newSession(), hr.count(), hr.max("v"), hr.count()) == PLAIN
    chosen = spark.newSession()
    for name, value in LARGE.items():
        chosen.conf.set(name, value)
    assert built(chosen, hr.max("v")) == LARGE
    chosen.conf.set(ARROW_BYTES, "1048576")
    assert built(chosen, hr.count(), hr.max("v"))[ARROW_BYTES] == "1048576"
    rows_said = spark.newSession()
    rows_said.conf.set(ARROW_ROWS, "500")
    assert built(rows_said, hr.count()) == {**LARGE, ARROW_ROWS: "500"}


def test_a_watermark_given_to_spark_is_the_event_time(rate: DataFrame) -> None:
    marked = rate.withColumnRenamed("ts", "at.the time").withWatermark("`at.the time`", "10 seconds")
    result = hr.stream(marked).groupBy("user", hr.tumbling("1 minute")).name("by user").agg(n=hr.count())
    assert result.columns == ["user", "window", "n"]
    assert operators_below(result) == ["by user"]


def test_the_window_stays_where_groupBy_has_it(rate: DataFrame) -> None:
    rows = hr.stream(rate).withWatermark("ts", "10 seconds")
    assert rows.groupBy(hr.tumbling("1 minute"), ["user"]).agg(n=hr.count()).columns == [
        "window",
        "user",
        "n",
    ]
