"""Protects conditions on aggregates, max_by and min_by: results are those of Spark's batch SQL, in both
paths and across a restart."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from batch_files import cut, latest, run, stream_of, write_batches
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark

BIG = "v > 40"


def events(seed: int, count: int = 400) -> pa.Table:
    """Distinct times and orders, so that Spark's results have no ties."""
    draw = random.Random(seed)
    order = draw.sample(range(-count * 5, count * 5), count)
    return pa.table(
        {
            "k": [draw.randrange(7) for _ in range(count)],
            "v": [None if draw.random() < 0.1 else draw.randrange(100) for _ in range(count)],
            "s": [None if draw.random() < 0.1 else f"s{draw.randrange(30)}" for _ in range(count)],
            "o": pa.array([None if draw.random() < 0.1 else value / 4 for value in order], pa.float64()),
            "ts": pa.array(
                [(1_900_000_000 + at) * 1_000_000 for at in draw.sample(range(count), count)],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )


@pytest.mark.parametrize("bridge", ["auto", "python"])
def test_conditions_and_ordered_aggregates_are_sparks(
    spark: SparkSession, tmp_path: Path, bridge: str
) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    table = events(len(bridge))
    parts = cut(table, [3, 90, 91, 250])
    write_batches(tmp_path / "in", parts[:3])
    df = stream_of(spark, tmp_path / "in")

    def aggregated() -> list[list[tuple[object, ...]]]:
        stream = hr.stream(df).withWatermark("ts", "10 days").groupBy("k")
        result = stream.agg(
            n=hr.count(filter=BIG),
            n_s=hr.count("s", filter=BIG),
            total=hr.sum("v", filter="s is not null"),
            mean=hr.avg("v", filter=BIG),
            low=hr.min("s", filter=BIG),
            spread=hr.variance("v", filter=BIG),
            first=hr.first("s", filter=BIG),
            last=hr.last("v", filter="s > 's2'"),
            at_most=hr.max_by("s", "o"),
            at_least=hr.min_by("v", F.col("o"), filter=F.col("v") > 40),
            by_decimal=hr.max_by("s", F.col("o").cast("decimal(12,2)")),
        )
        return run(result, tmp_path / "ck")

    batches = aggregated()
    write_batches(tmp_path / "in", parts[3:], first=3)
    batches += aggregated()  # a restart in between
    spark.conf.unset("spark.headrace.bridge")
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    expected = spark.sql("""
        SELECT k, count(*) FILTER (WHERE v > 40), count(s) FILTER (WHERE v > 40),
          sum(v) FILTER (WHERE s IS NOT NULL), avg(v) FILTER (WHERE v > 40), min(s) FILTER (WHERE v > 40),
          round(variance(v) FILTER (WHERE v > 40), 6), min_by(s, ts) FILTER (WHERE v > 40),
          max_by(v, ts) FILTER (WHERE s > 's2'), max_by(s, o), min_by(v, o) FILTER (WHERE v > 40),
          max_by(s, o)
        FROM rows GROUP BY k
    """)
    ours = [(*row[:6], round(row[6], 6), *row[7:]) for row in latest(batches, 1).values()]
    assert sorted(ours, key=repr) == sorted((tuple(row) for row in expected.collect()), key=repr)


def test_windows_and_kept_rows_take_conditions(spark: SparkSession, tmp_path: Path) -> None:
    table = events(3)
    write_batches(tmp_path / "in", cut(table, [100, 101, 300]))
    end = table.slice(0, 1).set_column(
        4, "ts", pa.array([4_000_000_000_000_000], pa.timestamp("us", tz="UTC"))
    )
    write_batches(tmp_path / "in", [end], first=90)
    df = stream_of(spark, tmp_path / "in")
    stream = hr.stream(df).withWatermark("ts", "1000 seconds")
    result = stream.groupBy("k", hr.tumbling("100 seconds")).agg(
        F.max_by("s", "o").alias("best"),
        F.collect_set("s").alias("set"),
        n=hr.count(filter=BIG),
        middle=hr.median("v", filter=BIG),
        tops=hr.top("v", 2, by="o", filter=BIG),
        most=hr.percentile("v", 0.9, filter=BIG),
        about=hr.approx_percentile("v", 0.5, filter=BIG),
        names=hr.collect_set("s", filter=BIG),
        all_names=hr.collect_list("s", filter=BIG),
        kinds=hr.count_distinct("s", filter=BIG),
        spread=hr.var_pop("v", filter=BIG),
    )
    shown = {
        "names": F.sort_array("names"),
        "all_names": F.sort_array("all_names"),
        "spread": F.round("spread", 6),
    }
    result = result.select(*(shown.get(name, name) for name in result.columns))
    rows = [row for batch in run(result, tmp_path / "ck") for row in batch]
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    expected = spark.sql("""
        SELECT k, window(ts, '100 seconds') AS w, max_by(s, o), sort_array(collect_set(s)),
          count(*) FILTER (WHERE v > 40), median(v) FILTER (WHERE v > 40),
          transform(slice(sort_array(collect_list(CASE WHEN v > 40 AND o IS NOT NULL THEN struct(o, v) END),
            false), 1, 2), x -> x.v),
          percentile(v, 0.9) FILTER (WHERE v > 40), percentile_approx(v, 0.5) FILTER (WHERE v > 40),
          sort_array(collect_set(s) FILTER (WHERE v > 40)),
          sort_array(collect_list(s) FILTER (WHERE v > 40)),
          count(DISTINCT s) FILTER (WHERE v > 40), round(var_pop(v) FILTER (WHERE v > 40), 6)
        FROM rows WHERE ts < '2050-01-01' GROUP BY 1, 2
    """)
    assert sorted(rows, key=repr) == sorted((tuple(row) for row in expected.collect()), key=repr)


def test_wrong_conditions_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [events(1, 5)])
    grouped = hr.stream(stream_of(spark, tmp_path / "in")).groupBy("k")
    with pytest.raises(QueryError, match="filter is v"):
        grouped.agg(n=hr.count(filter=F.col("v")))
    with pytest.raises(QueryError, match="order by a number"):
        grouped.agg(x=hr.max_by("v", "s"))


@pytest.mark.parametrize("bridge", ["auto", "python"])
def test_distinct_counts_are_sparks_after_every_batch(
    spark: SparkSession, tmp_path: Path, bridge: str
) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    parts = cut(events(len(bridge) + 5), [3, 90, 91, 250])
    df = stream_of(spark, tmp_path / "in", "k long, v long, s string, o double, ts timestamp")
    own = F.when(F.col("o") % 3 == 0, F.lit(-0.0)).otherwise(F.col("o") % 2)  # both zeros are one value

    def counted() -> list[list[tuple[object, ...]]]:
        result = (
            hr.stream(df)
            .groupBy("k")
            .agg(
                F.count_distinct("s").alias("strings"),
                n=hr.count("s"),
                some=hr.count_distinct("s", filter=BIG),
                floats=hr.count_distinct(own),
                emit="changelog",
            )
        )
        return run(result, tmp_path / "ck")

    write_batches(tmp_path / "in", parts[:3])
    batches = counted()
    write_batches(tmp_path / "in", parts[3:], first=3)
    batches += counted()  # a restart in between
    spark.conf.unset("spark.headrace.bridge")
    now: dict[object, tuple[object, ...]] = {}
    for number, rows in enumerate(batches):
        now |= {row[0]: row[:-1] for row in rows if row[-1] in ("insert", "update_after")}
        write_batches(tmp_path / f"until{number}", parts[: number + 1])
        spark.read.parquet(str(tmp_path / f"until{number}")).createOrReplaceTempView("rows")
        expected = spark.sql("""
            SELECT k, count(DISTINCT s), count(s), count(DISTINCT s) FILTER (WHERE v > 40),
              count(DISTINCT CASE WHEN o % 3 = 0 THEN -0.0D ELSE o % 2 END)
            FROM rows GROUP BY k
        """)
        assert sorted(now.values(), key=repr) == sorted(
            (tuple(row) for row in expected.collect()), key=repr
        )


def test_distinct_counts_of_windows_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    table = events(6)
    far = pa.array([4_000_000_000_000_000], pa.timestamp("us", tz="UTC"))
    write_batches(tmp_path / "in", [*cut(table, [100, 300]), table.slice(0, 1).set_column(4, "ts", far)])
    rows = hr.stream(stream_of(spark, tmp_path / "in")).withWatermark("ts", "1000 seconds")
    final = rows.groupBy("k", hr.sliding("100 seconds", "50 seconds")).agg(n=hr.count_distinct("s"))
    changes = rows.groupBy("k", hr.tumbling("100 seconds")).agg(n=hr.count_distinct("s"), emit="changes")
    ours = {
        "window(ts, '100 seconds', '50 seconds')": [row for b in run(final, tmp_path / "a") for row in b],
        "window(ts, '100 seconds')": list(latest(run(changes, tmp_path / "b"), 2).values()),
    }
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    for window, results in ours.items():
        expected = spark.sql(f"SELECT k, {window} AS w, count(DISTINCT s) FROM rows GROUP BY 1, 2")
        known = {tuple(row) for row in expected.collect() if row[1].end.year < 2050}
        assert {row for row in results if row[1].end.year < 2050} == known


def test_approximate_counts_are_within_their_error(spark: SparkSession, tmp_path: Path) -> None:
    values = [number % 9000 if number % 3 else number % 7 for number in range(24_000)]
    table = pa.table({"k": [number % 3 for number in range(24_000)], "v": values})
    write_batches(tmp_path / "in", cut(table, [100, 9000]))
    rows = hr.stream(stream_of(spark, tmp_path / "in"))
    counts = rows.groupBy("k").agg(
        F.approx_count_distinct("v", 0.02).alias("spark"),
        {"v": "approx_count_distinct"},
        small=hr.approx_count_distinct(F.when(F.col("v") < 5, F.col("v")), filter="v <> 2"),
        exact=hr.count_distinct("v"),
    )
    last = latest(run(counts, tmp_path / "ck"), 1)
    assert {key[0]: row[-1] for key, row in last.items()} == {0: 7, 1: 3000, 2: 3000}
    for (key,), (_, as_spark, as_dict, small, exact) in last.items():
        assert abs(as_spark / exact - 1) < 5 * 0.02, key
        assert abs(as_dict / exact - 1) < 5 * 0.05, key
        assert small == {0: 4, 1: 2, 2: 0}[key]
    with pytest.raises(QueryError, match="rsd is 3"):
        hr.approx_count_distinct("v", 3)
