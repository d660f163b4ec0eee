"""Protects changelogs: applied in order they equal Spark's batch result after every batch, in both paths.
An aggregate over a changelog takes rows back."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_files import Rows, cut, run, stream_of, write_batches
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark

DOUBLES = [None, 0.5, 2.25, math.inf, -1.0]


def events(seed: int, count: int = 300) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "k": [draw.randrange(25) for _ in range(count)],
            "g": [f"g{draw.randrange(3)}" for _ in range(count)],
            "v": [None if draw.random() < 0.2 else draw.randrange(100) for _ in range(count)],
            "d": pa.array([draw.choice(DOUBLES) for _ in range(count)], pa.float64()),
        }
    )


def applied(state: Counter[tuple[Any, ...]], rows: Rows) -> None:
    """Applies changes in order; a change must find the row that it takes away."""
    for *row, kind in rows:
        if kind in ("update_before", "delete"):
            assert state[tuple(row)] > 0, f"no row {row} to take back"
            state[tuple(row)] -= 1
        else:
            state[tuple(row)] += 1


@pytest.mark.parametrize("bridge", ["auto", "python"])
def test_a_changelog_applied_in_order_is_the_result_after_every_batch(
    spark: SparkSession, tmp_path: Path, bridge: str
) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    parts = cut(events(1), [1, 60, 61, 200])
    write_batches(tmp_path / "in", parts)
    df = stream_of(spark, tmp_path / "in")
    of_k = (
        hr.stream(df)
        .name("per k")
        .groupBy("k", "g")
        .agg(top=hr.max("v"), n=hr.count("v"), d=hr.max("d"), emit="changelog")
    )
    of_g = (
        hr.stream(of_k.where("n > 1"))  # a filter splits pairs of updates
        .name("per g")
        .groupBy("g")
        .agg(mean=hr.avg("top"), total=hr.sum("n"), k=hr.count(), d=hr.sum("d"), emit="changelog")
    )
    lower, upper = run(of_k, tmp_path / "a"), run(of_g, tmp_path / "b")
    spark.conf.unset("spark.headrace.bridge")
    for ours, sql in (
        (lower, "SELECT k, g, max(v), count(v), max(d) FROM rows GROUP BY k, g"),
        (
            upper,
            "SELECT g, avg(top), sum(n), count(*), sum(d) FROM (SELECT g, max(v) AS top, count(v) AS n, "
            "max(d) AS d FROM rows GROUP BY k, g HAVING count(v) > 1) GROUP BY g",
        ),
    ):
        state: Counter[tuple[Any, ...]] = Counter()
        for number, rows in enumerate(ours):
            applied(state, rows)
            write_batches(tmp_path / f"until{number}", parts[: number + 1])
            spark.read.parquet(str(tmp_path / f"until{number}")).createOrReplaceTempView("rows")
            assert +state == Counter(tuple(row) for row in spark.sql(sql).collect())
    kinds = {row[-1] for rows in upper for row in rows}
    assert kinds >= {"insert", "update_before", "update_after"}
    for rows in lower:  # rows without any value change no result, only the hidden count of rows
        gone, came = (
            {row[:-1] for row in rows if row[-1] == f"update_{kind}"} for kind in ("before", "after")
        )
        assert not gone & came


def test_a_group_without_rows_is_deleted_and_may_return(spark: SparkSession, tmp_path: Path) -> None:
    """Keys move between groups as their maximum grows."""
    write_batches(tmp_path / "in", cut(events(2, 120), list(range(10, 120, 10))))
    df = stream_of(spark, tmp_path / "in")
    tops = hr.stream(df).name("tops").groupBy("k").agg(top=hr.max("v"), emit="changelog")
    moved = tops.withColumn("tens", F.floor(F.col("top") / 10))
    counts = hr.stream(moved).name("counts").groupBy("tens").agg(n=hr.count(), emit="changelog")
    batches = run(counts, tmp_path / "ck")
    state: Counter[tuple[Any, ...]] = Counter()
    for rows in batches:
        assert len({row[:-1] for row in rows if row[-1] != "x"}) == len(rows)  # equal rows are not repeated
        applied(state, rows)
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("rows")
    expected = spark.sql(
        "SELECT floor(top / 10), count(*) FROM (SELECT k, max(v) AS top FROM rows GROUP BY k) GROUP BY 1"
    )
    assert +state == Counter(tuple(row) for row in expected.collect())
    assert "delete" in {row[-1] for rows in batches for row in rows}


def test_complete_results_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    parts = cut(events(4), [50, 51, 250])
    write_batches(tmp_path / "in", parts)
    df = stream_of(spark, tmp_path / "in")

    def counted(stream: Any) -> DataFrame:
        return stream.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))

    ours = run(
        hr.stream(df).groupBy("k").agg(n=hr.count(), total=hr.sum("v"), emit="complete"), tmp_path / "a"
    )
    for number, rows in enumerate(ours):
        write_batches(tmp_path / f"until{number}", parts[: number + 1])
        batch = counted(spark.read.parquet(str(tmp_path / f"until{number}")))
        assert sorted(rows) == sorted(tuple(row) for row in batch.collect())


def test_what_would_go_wrong_silently_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [events(3, 5)])
    df = stream_of(spark, tmp_path / "in")
    changes = hr.stream(df).name("a").groupBy("k").agg(n=hr.count(), emit="changelog")
    with pytest.raises(QueryError, match="was dropped"):
        hr.stream(changes.drop("_kind")).name("b").groupBy("n").agg(k=hr.count())
    with pytest.raises(QueryError, match="deterministic"):
        hr.stream(changes.where(F.rand() > 0.5)).name("b").groupBy("n").agg(k=hr.count())
    with pytest.raises(QueryError, match="takes plain rows"):
        hr.stream(changes).name("b").dropDuplicates("n")
    for left, right in ((df, changes), (changes, df.select("k"))):
        with pytest.raises(QueryError, match="takes plain rows"):
            hr.stream(left).name("b").join(hr.stream(right), on="k")
    seconds = hr.stream(changes).name("b").groupBy(hr.tumbling("1 second", on=F.timestamp_seconds("n")))
    with pytest.raises(QueryError, match="no event time"):
        seconds.agg(k=hr.count(), emit="changes")
    sliding = hr.sliding("10 seconds", "2 seconds", on=F.timestamp_seconds("k"))
    with pytest.raises(QueryError, match="sliding"):
        hr.stream(df).groupBy(sliding).agg(n=hr.count(), emit="changelog")
