"""Protects values of any type in state: arrays, maps, structs and variants pass through every operator as
they were, and arrays and structs are keys as in Spark's own aggregates. On both ways to the host."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_files import Rows, cut, latest, run, stream_of, write_batches
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import OperatorChanged, QueryError

pytestmark = pytest.mark.spark

FAR = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)
START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
NUMBERS = [None, [], [0.0], [-0.0], [float("nan")], [1.5, None, 2.5], [1.5, 2.5]]


def events(seed: int, count: int = 160) -> pa.Table:
    """Nested columns with nulls on every level; the last row is a far-future one."""
    draw = random.Random(seed)

    def text() -> str | None:
        return draw.choice([None, "", "ä", "x" * draw.randrange(40)])

    def box() -> dict[str, Any]:
        return {"n": draw.choice([None, 1, 2]), "tags": draw.choice([None, [], ["a", None], ["b"]])}

    maps = [draw.choice([None, [], [("a", [1, None])], [("b", None), ("a", [2])]]) for _ in range(count)]
    times = [START + dt.timedelta(seconds=draw.randrange(60) + at // 4) for at in range(count)]
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "k": pa.array([draw.randrange(4) for _ in range(count)], pa.int64()),
            "numbers": pa.array([draw.choice(NUMBERS) for _ in range(count)], pa.list_(pa.float64())),
            "box": pa.array(
                [draw.choice([None, box(), box()]) for _ in range(count)],
                pa.struct([("n", pa.int32()), ("tags", pa.list_(pa.string()))]),
            ),
            "boxes": pa.array(
                [draw.choice([None, [], [box(), None, {"n": 1, "tags": [text()]}]]) for _ in range(count)],
                pa.list_(pa.struct([("n", pa.int32()), ("tags", pa.list_(pa.string()))])),
            ),
            "map": pa.array(maps, pa.map_(pa.string(), pa.list_(pa.int64()))),
            "json": pa.array([draw.choice([None, '{"a": [1, 2.5, null]}', '"x"']) for _ in range(count)]),
            "ts": pa.array([*times[:-1], FAR], pa.timestamp("us", tz="UTC")),
        }
    )


def with_variant(df: DataFrame) -> DataFrame:
    return df.withColumn("variant", F.parse_json("json")).drop("json")


def shown(rows: Any) -> list[str]:
    """Rows as text: values such as maps and NaN have no order and no equality."""
    return sorted(repr(tuple(row)) for row in rows)


def flat(batches: list[Rows]) -> Rows:
    return [row for rows in batches for row in rows]


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, DataFrame]:
    """A stream in five batches, and all of its rows."""
    write_batches(tmp_path / "in", cut(events(3), [1, 40, 90, 159]))
    return (
        with_variant(stream_of(spark, tmp_path / "in")),
        with_variant(spark.read.parquet(str(tmp_path / "in"))),
    )


Feed = tuple[DataFrame, DataFrame]


@pytest.mark.parametrize("bridge", ["auto", "python"])
def test_keys_and_carried_values_are_sparks(
    spark: SparkSession, tmp_path: Path, feed: Feed, bridge: str
) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    stream, rows = feed
    years = F.expr("make_ym_interval(1, int(k))")
    ours = run(
        hr.stream(stream)
        .groupBy("numbers", "box")
        .agg(
            n=hr.count("map"),
            boxes=hr.max_by("boxes", "id"),
            map=hr.min_by("map", "id"),
            variant=hr.max_by(F.col("variant"), "id"),
            span=hr.max_by(years, "id"),
            both=hr.max_by(F.struct("boxes", "map"), "id"),
            kinds=hr.count_distinct(F.struct("boxes", "numbers")),
        )
        .withColumn("span", F.col("span").cast("string")),
        tmp_path / "ck",
    )
    theirs = rows.groupBy("numbers", "box").agg(
        F.count("map"),
        F.max_by("boxes", "id"),
        F.min_by("map", "id"),
        F.max_by("variant", "id"),
        F.max_by(years, "id").cast("string"),
        F.max_by(F.struct("boxes", "map"), "id"),
        F.count_distinct(F.struct("boxes", "numbers")),
    )
    final = {repr(row[:2]): row for row in flat(ours)}
    assert shown(final.values()) == shown(theirs.collect())


def test_kept_rows_come_back_as_they_were(spark: SparkSession, tmp_path: Path, feed: Feed) -> None:
    stream, rows = feed
    window = (
        hr.stream(stream)
        .withWatermark("ts", "2 minutes")
        .groupBy("k", hr.tumbling("10 minutes"))
        .agg(
            values=hr.collect_list(F.struct("id", "boxes", "map", "variant")),
            distinct=hr.collect_set("numbers"),
            first=hr.first("boxes"),
            most=hr.top("map", 2, by="id"),
        )
        .select(F.size("distinct"), F.expr("transform(most, m -> map_keys(m))"), F.explode("values"))
    )
    ours = [(size, most, *value) for size, most, value in flat(run(window, tmp_path / "ck"))]
    inner = rows.where(F.col("ts") < F.lit(FAR))
    entries = "collect_list(struct(id, map_keys(map) as names))"
    newest = f"slice(sort_array({entries}, false), 1, 2)"
    per_key = inner.groupBy("k").agg(
        F.size(F.collect_set("numbers")).alias("size"),
        F.expr(f"transform({newest}, m -> m.names)").alias("most"),
    )
    theirs = inner.join(per_key, "k").select("size", "most", "id", "boxes", "map", "variant")
    assert shown(ours) == shown(theirs.collect())


def test_rows_of_dedup_top_and_joins_are_those_of_the_stream(
    spark: SparkSession, tmp_path: Path, feed: Feed
) -> None:
    stream, rows = feed
    names = rows.columns
    by_id = {row["id"]: repr(tuple(row)) for row in rows.collect()}

    unique = flat(run(hr.stream(stream).dropDuplicates("boxes", "numbers"), tmp_path / "dedup"))
    assert len(unique) == rows.dropDuplicates(["boxes", "numbers"]).count()
    assert all(repr(row) == by_id[row[0]] for row in unique)

    best = run(
        hr.stream(stream).groupBy("numbers").top(1, by="id", rank="place", emit="changes"), tmp_path / "t"
    )
    last = {repr(row[names.index("numbers")]).replace("-0.0", "0.0"): repr(row[:-1]) for row in flat(best)}
    assert sorted(last.values()) == sorted(
        by_id[row[0]] for row in rows.groupBy("numbers").agg(F.max("id").alias("id")).select("id").collect()
    )

    left = hr.stream(stream).withWatermark("ts", "2 minutes")
    others = stream.select(
        F.col("numbers").alias("key"), F.col("boxes").alias("other"), F.col("ts").alias("at")
    )
    joined = left.join(
        hr.stream(others).withWatermark("at", "2 minutes"),
        on=[("numbers", "key")],
        window=hr.tumbling("1 minute"),
        how="left",
    )
    ours = flat(run(joined.select("id", "map", "variant", "other"), tmp_path / "join"))
    theirs = spark.sql(
        "SELECT id, map, variant, other FROM {l} LEFT JOIN {r} ON numbers = key "
        "AND date_trunc('minute', ts) = date_trunc('minute', at) WHERE ts < timestamp'2030-06-01'",
        l=rows,
        r=rows.selectExpr("numbers as key", "boxes as other", "ts as at"),
    )
    assert shown(ours) == shown(theirs.collect())


@pytest.mark.parametrize("bridge", ["auto", "python"])
def test_functions_see_values_as_they_were(
    spark: SparkSession, tmp_path: Path, feed: Feed, bridge: str
) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    stream, rows = feed
    stream = stream.drop("variant")

    def same(table: pa.Table) -> pa.Table:
        return table.select(["id", "numbers", "box", "boxes", "map"])

    schema = stream.select("id", "numbers", "box", "boxes", "map").schema
    grouped = hr.stream(stream).withWatermark("ts", "2 minutes").groupBy("boxes", hr.tumbling("1 minute"))
    ours = flat(run(grouped.applyInArrow(same, schema), tmp_path / "ck"))
    theirs = rows.where(F.col("ts") < F.lit(FAR)).select("id", "numbers", "box", "boxes", "map")
    assert shown(ours) == shown(theirs.collect())


def test_another_element_type_does_not_read_the_bytes(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [pa.table({"k": [1], "xs": [[1, 2]]})])
    stream = stream_of(spark, tmp_path / "in")
    first = run(hr.stream(stream).groupBy("k").agg(xs=hr.max_by("xs", "k")), tmp_path / "ck")
    assert latest(first, 1) == {(1,): (1, [1, 2])}
    write_batches(tmp_path / "in", [pa.table({"k": [1], "xs": [[3, 4]]})], 1)
    changed = stream.withColumn("xs", F.col("xs").cast("array<double>"))
    with pytest.raises(Exception, match="array<double>") as raised:
        run(hr.stream(changed).groupBy("k").agg(xs=hr.max_by("xs", "k")), tmp_path / "ck")
    assert OperatorChanged.__name__ in str(raised.value) or "is not the one" in str(raised.value)


def test_what_has_no_order_or_equality_is_refused(spark: SparkSession, feed: Feed) -> None:
    stream, _ = feed
    with pytest.raises(QueryError, match="are no keys"):
        hr.stream(stream).groupBy("map").agg(n=hr.count())
    with pytest.raises(QueryError, match="are no keys"):
        hr.stream(stream).dropDuplicates("variant")
    with pytest.raises(QueryError, match="cannot be compared in state"):
        hr.stream(stream).groupBy("k").agg(m=hr.max("numbers"))
