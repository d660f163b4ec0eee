"""Protects what joins without a window take beside equal keys: conditions, retention, further streams.

Joins with history too. Their rows are those of Spark's batch joins. What cannot be right is refused by
name.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_files import run, stream_of, write_batches
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark

START = datetime(2030, 1, 1, tzinfo=UTC)
LONG = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three streams of rows in order of time, and in the end rows of another key that close everything."""
    draw, folder = random.Random(5), tmp_path_factory.mktemp("streams")
    for name in "abc":
        rows = [(draw.choice([None, 0, 1, 2]), second, draw.randrange(20)) for second in range(60)]
        batches = [rows[:15], rows[15:31], rows[31:], [(9, 3000, 0)], [(9, 6000, 0)]]
        write_batches(folder / name, [table(name, batch) for batch in batches])
    return folder


def table(name: str, rows: Sequence[tuple[int | None, int, int]]) -> pa.Table:
    ids, seconds, values = zip(*rows, strict=True)
    times = [START + timedelta(seconds=second) for second in seconds]
    columns = {
        f"{name}k": pa.array(ids, pa.int64()),
        f"{name}t": pa.array(times, pa.timestamp("us", tz="UTC")),
        f"{name}v": pa.array(values, pa.int64()),
    }
    return pa.table(columns)


def stream(spark: SparkSession, folder: Path, name: str) -> hr.Stream:
    return hr.stream(stream_of(spark, folder / name)).withWatermark(f"{name}t", "1 second")


def batch(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    return spark.read.parquet(str(folder / name))


def counted(rows: Any) -> Counter[Any]:
    """All rows but those that close the streams."""
    return Counter(tuple(row) for row in rows if 9 not in tuple(row))


def joined(df: DataFrame, checkpoint: Path) -> Counter[Any]:
    return counted(row for rows in run(df, checkpoint) for row in rows)


CASES = [
    ("inner", ["av + bv > 20", "av > 3"], "av + bv > 20 and av > 3"),
    pytest.param("left", ["av > 9", "bv < 12"], "av > 9 and bv < 12", marks=LONG),
    ("full", ["av > 9", "bv < 12"], "av > 9 and bv < 12"),
    pytest.param("semi", ["bv % 3 = 0"], "bv % 3 = 0", marks=LONG),
    ("anti", ["av > 9", "bv < 12"], "av > 9 and bv < 12"),
    ("full", ["av > bv", "bv < 12"], "av > bv and bv < 12"),
    ("left", "abs(av - bv) <= 3 or av + bv + bk > 30", "abs(av - bv) <= 3 or av + bv + bk > 30"),
    pytest.param("right", "av between bv and bv * 1.5", "av between bv and bv * 1.5", marks=LONG),
    ("semi", "not (av % 3 <=> nullif(bv % 3, 0))", "not (av % 3 <=> nullif(bv % 3, 0))"),
    ("anti", ["at <= bt", "nullif(av % 4, 0) < bv"], "at <= bt and nullif(av % 4, 0) < bv"),
    pytest.param(
        "left", "concat(av, 'x') < string(bv) or av is null", "concat(av, 'x') < string(bv)", marks=LONG
    ),
]


@pytest.mark.parametrize(("how", "where", "both"), CASES)
def test_conditions_are_those_of_a_batch_join(
    spark: SparkSession, folder: Path, tmp_path: Path, how: str, where: list[Any], both: str
) -> None:
    """Retention beside them: rows at most ten seconds apart match."""
    left, right = (stream(spark, folder, name) for name in "ab")
    df = left.join(right, on=[("ak", "bk")], how=how, retain="10 seconds", where=where)
    a, b = (batch(spark, folder, name) for name in "ab")
    near = "at between bt - interval 10 seconds and bt + interval 10 seconds"
    expected = a.join(
        b, (F.col("ak") == F.col("bk")) & F.expr(near) & F.expr(both), how.replace("full", "outer")
    )
    if how in ("semi", "anti"):
        expected = expected.select("ak", "at", "av")
    else:
        expected = expected.select(F.coalesce("ak", "bk"), "at", "av", "bt", "bv")
    rows = joined(df, tmp_path)
    assert rows == counted(expected.collect())
    assert len(rows) > 5


def test_three_streams_meet(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """All rows of equal keys, in whatever batch they come."""
    ab = stream(spark, folder, "a").name("ab").join(stream(spark, folder, "b"), on=[("ak", "bk")])
    df = hr.stream(ab).name("abc").join(stream(spark, folder, "c"), on=[("ak", "ck")], where="av < bv + cv")
    a, b, c = (batch(spark, folder, name) for name in "abc")
    expected = (
        a.join(b, F.col("ak") == F.col("bk")).join(c, F.col("ak") == F.col("ck")).where("av < bv + cv")
    )
    assert joined(df, tmp_path) == counted(expected.drop("bk", "ck").collect())


@pytest.mark.parametrize("bridge", ["auto", pytest.param("python", marks=LONG)])
def test_settled_history_is_a_batch_join(
    spark: SparkSession, folder: Path, tmp_path: Path, bridge: str
) -> None:
    """A row meets the rows of the eight seconds before it, whatever batch brought them."""
    spark.conf.set("spark.headrace.bridge", bridge)
    left, right = (stream(spark, folder, name) for name in "ab")
    df = left.history(right, on=[("ak", "bk")], within="8 seconds", how="left", settled=True)
    a, b = (batch(spark, folder, name) for name in "ab")
    near = F.expr("at between bt and bt + interval 8 seconds")
    expected = a.join(b, (F.col("ak") == F.col("bk")) & near, "left").drop("bk")
    assert joined(df, tmp_path) == counted(expected.collect())


def test_history_at_once_has_what_came_before(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Every row comes out in its own batch, with rows of that batch and of those before."""
    left, right = (stream(spark, folder, name) for name in "ab")
    df = left.history(right, on=[("ak", "bk")], within="1 hour", how="semi")
    batches = run(df, tmp_path)
    a, b = (batch(spark, folder, name).orderBy(f"{name}t").collect() for name in "ab")
    ends = [15, 31, 60]
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        known = {(row.bk, row.bt) for row in b[:end] if row.bk is not None}
        met = [
            tuple(row)
            for row in a[start:end]
            if any(row.ak == key and time <= row.at for key, time in known)
        ]
        assert sorted(batches[number]) == sorted(met)


def test_what_cannot_be_right_is_refused(spark: SparkSession, folder: Path) -> None:
    left, right = (stream(spark, folder, name) for name in "ab")
    on: Any = [("ak", "bk")]
    for where in ("pmod(av, bv) = 1", "av / bv > 2", "at - bt > interval 1 second", "rand() * bv > av"):
        with pytest.raises(QueryError, match="the host cannot compute"):
            left.join(right, on=on, how="left", retain="1 hour", where=where)
    with pytest.raises(QueryError, match="is bigint, not a condition"):
        left.join(right, on=on, how="left", retain="1 hour", where="av + bv")
    both = hr.stream(right.df.withColumn("av", F.col("bv")))
    with pytest.raises(QueryError, match="both streams have a column av"):
        left.join(both, on=on, how="semi", where="av > bv")
    with pytest.raises(QueryError, match="is bigint, not a condition"):
        left.join(right, on=on, where="av + 1")
    with pytest.raises(QueryError, match="needs between= or retain="):
        left.join(right, on=on, how="anti")
    with pytest.raises(QueryError, match="one of between=, retain= and until="):
        left.join(right, on=on, retain="1 hour", until="bt")
    with pytest.raises(QueryError, match="until=bv is bigint"):
        left.join(right, on=on, until="bv")
    with pytest.raises(QueryError, match="not stored for as long"):
        left.join(right, on=on, until="bt", how="full")
