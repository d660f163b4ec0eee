"""Protects joins of two streams: the rows are those of Spark's own batch join on key and window. Cases are
out-of-order and late rows, null keys, outer rows, a stream joined with itself, and a restart on a new host.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from streaming_case import Case

import headrace as hr

pytestmark = pytest.mark.spark

DELAYS_S = (4, 2)
KEYS = ("id", "seller")
BATCHES = 5
SECOND = 1_000_000


@pytest.fixture(autouse=True)
def _eager(spark: SparkSession) -> Iterator[None]:
    """A window closes in the batch whose data passes it, as the model below says."""
    spark.conf.set("spark.headrace.timing", "eager")
    yield
    spark.conf.unset("spark.headrace.timing")


Row = tuple[int | None, int, str | None]  # key, second, text
Batch = tuple[list[Row], list[Row]]


def batches_of(seed: int) -> list[Batch]:
    """Rows out of order, some of them late, one batch without a right side; the last one closes all."""
    draw = random.Random(seed)

    def row(batch: int, side: int) -> Row:
        key = draw.choice([None, 0, 1, 2, 3, 4])
        return key, batch * 8 + draw.randrange(-9, 8), draw.choice([None, f"{side}-{draw.randrange(99)}"])

    made: list[Batch] = [
        ([row(batch, 0) for _ in range(40)], [row(batch, 1) for _ in range(30 * (batch != 2))])
        for batch in range(1, BATCHES)
    ]
    return [*made, ([(99, 1000, "end")], [(99, 1000, "end")])]


def closed_before(batches: list[Batch]) -> list[int | None]:
    """The watermark, in seconds, that each batch begins with, and the one after the last."""
    frontiers: list[int | None] = [None, None]
    marks: list[int | None] = [None]
    for batch in batches:
        for side, rows in enumerate(batch):
            seen = [second for _, second, _ in rows] + [frontiers[side]] * (frontiers[side] is not None)
            frontiers[side] = max(seen, default=None)
        known = [at - delay for at, delay in zip(frontiers, DELAYS_S, strict=True) if at is not None]
        marks.append(min(known) if len(known) == 2 else None)
    return marks


@dataclass(frozen=True)
class Streams:
    """Files of both streams, one per batch."""

    spark: SparkSession
    folder: Path

    def feed(self, number: int, batch: Batch, mark: int | None) -> None:
        for side, rows in enumerate(batch):
            keys, seconds, texts = zip(*rows, strict=True) if rows else ((), (), ())
            times = pa.array([second * SECOND for second in seconds], pa.timestamp("us", tz="UTC"))
            columns = {"k": pa.array(keys, pa.int32()), "ts": times, "text": pa.array(texts, pa.string())}
            columns["mark"] = pa.array([-(10**6) if mark is None else mark] * len(rows), pa.int64())
            path = self.folder / str(side) / f"{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(columns), path)
            os.utime(path, (1000 + number, 1000 + number))  # Spark takes files in the order of their times

    def read(self, side: int, *, streaming: bool = True) -> DataFrame:
        spark = self.spark
        reader = spark.readStream.option("maxFilesPerTrigger", 1) if streaming else spark.read
        rows = reader.schema("k int, ts timestamp, text string, mark long").parquet(
            str(self.folder / str(side))
        )
        if side == 0:
            return rows.selectExpr("k as id", "text as name", "ts as seen", "mark as m0")
        columns = (
            "bigint(k) as seller",
            "ts as opened",
            "struct(text as title, k as n) as item",
            "mark as m1",
        )
        return rows.selectExpr(*columns)


def stream(df: DataFrame, time: str, side: int) -> hr.Stream:
    return hr.stream(df).withWatermark(time, f"{DELAYS_S[side]} seconds")


def expected(left: DataFrame, right: DataFrame, how: str, window: list[str], final: int) -> Counter[Any]:
    """Spark's join of the rows that were in time for each window, as far as windows are closed."""

    def windowed(df: DataFrame, time: str, mark: str) -> DataFrame:
        cut = df.withColumn("window", F.window(time, *window))
        return cut.where(F.unix_seconds("window.end") > F.col(mark))

    a, b = windowed(left, "seen", "m0"), windowed(right, "opened", "m1")
    on = (a.id == b.seller) & (a.window == b.window)
    joined = a.join(b, on, how).select(
        F.coalesce(a.id.cast("bigint"), b.seller),
        F.coalesce(a.window, b.window).alias("window"),
        *(a[name] for name in ("name", "seen", "m0")),
        *(b[name] for name in b.columns if name not in ("seller", "window")),
    )
    return Counter(map(tuple, joined.where(F.unix_seconds("window.end") <= final).collect()))


def run(case: Case, df: DataFrame) -> Counter[Any]:
    return Counter(tuple(row[1:]) for row in case.run(df))


CASES = [
    ("inner", hr.tumbling("10 seconds"), ["10 seconds"]),
    ("full", hr.tumbling("10 seconds", offset="3 seconds"), ["10 seconds", "10 seconds", "3 seconds"]),
    ("left", hr.sliding("12 seconds", "4 seconds"), ["12 seconds", "4 seconds"]),
    ("right", hr.sliding("9 seconds", "6 seconds"), ["9 seconds", "6 seconds"]),
]


@pytest.mark.parametrize(("how", "window", "spark_window"), CASES)
def test_a_join_is_sparks_batch_join(
    spark: SparkSession, tmp_path: Path, how: Any, window: Any, spark_window: list[str]
) -> None:
    batches = batches_of(len(how))
    marks = closed_before(batches)
    streams, case = Streams(spark, tmp_path / "in"), Case(spark, tmp_path / "in", tmp_path / "ck")
    for number, batch in enumerate(batches):
        streams.feed(number, batch, marks[number])
    left, right = stream(streams.read(0), "seen", 0), stream(streams.read(1), "opened", 1)
    got = run(case, left.join(right, on=[KEYS], window=window, how=how))
    stored = [streams.read(side, streaming=False) for side in (0, 1)]
    assert marks[-1] is not None
    want = expected(stored[0], stored[1], how, spark_window, marks[-1])
    assert sum(want.values()) > 100
    assert got == want


def test_late_rows_are_in_the_cases() -> None:
    batches = batches_of(5)
    late = [
        second
        for batch, mark in zip(batches, closed_before(batches), strict=False)
        for _, second, _ in batch[0]
        if mark is not None and second - second % 10 + 10 <= mark
    ]
    assert late


def test_a_join_goes_on_after_a_restart_on_a_new_host(spark: SparkSession, tmp_path: Path) -> None:
    batches = batches_of(7)
    marks = closed_before(batches)
    streams, case = Streams(spark, tmp_path / "in"), Case(spark, tmp_path / "in", tmp_path / "ck")

    def result(how: Any = "full") -> DataFrame:
        left, right = stream(streams.read(0), "seen", 0), stream(streams.read(1), "opened", 1)
        return left.join(right, on=[KEYS], window=hr.tumbling("10 seconds"), how=how)

    for number in range(2):
        streams.feed(number, batches[number], marks[number])
    got = run(case, result())
    for number in range(2, BATCHES):
        streams.feed(number, batches[number], marks[number])
    assert "the join was full, is now inner" in case.refusal(result("inner"))
    assert case.kill_hosts()
    got += run(case, result())
    stored = [streams.read(side, streaming=False) for side in (0, 1)]
    assert marks[-1] is not None
    assert got == expected(stored[0], stored[1], "full", ["10 seconds"], marks[-1])


def test_a_stream_is_joined_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    streams, case = Streams(spark, tmp_path / "in"), Case(spark, tmp_path / "in", tmp_path / "ck")
    rows: list[Row] = [(1, 1, "a"), (1, 2, "b"), (2, 3, "c"), (1, 11, "d")]
    streams.feed(0, (rows, []), None)
    streams.feed(1, ([(9, 100, "z")], []), None)
    left = stream(streams.read(0).select("id", "name", "seen"), "seen", 0)
    renamed = left.df.select("id", F.col("name").alias("other"), F.col("seen").alias("again"))
    out = left.join(hr.stream(renamed), on="id", window=hr.tumbling("10 seconds"))
    got = run(case, out.select("id", "name", "other"))
    assert got == Counter([(1, x, y) for x in "ab" for y in "ab"] + [(2, "c", "c"), (1, "d", "d")])


def test_a_session_spans_the_rows_of_both_streams(spark: SparkSession, tmp_path: Path) -> None:
    streams, case = Streams(spark, tmp_path / "in"), Case(spark, tmp_path / "in", tmp_path / "ck")
    streams.feed(0, ([(1, 1, "a"), (1, 9, "b"), (2, 1, "c")], [(1, 5, "x"), (1, 30, "y")]), None)
    streams.feed(1, ([(None, 31, "d"), (9, 100, "z")], [(9, 100, "z")]), None)
    left, right = stream(streams.read(0), "seen", 0), stream(streams.read(1), "opened", 1)
    out = left.join(right, on=[KEYS], window=hr.session("4 seconds"), how="full")
    seconds = [F.unix_seconds(f"window.{bound}") for bound in ("start", "end")]
    got = run(case, out.select("id", *seconds, "name", "item.title"))
    assert got == Counter(
        [
            (1, 1, 13, "a", "x"),
            (1, 1, 13, "b", "x"),
            (1, 30, 34, None, "y"),
            (2, 1, 5, "c", None),
            (None, 31, 35, "d", None),
        ]
    )
