"""Protects joins of two streams without a window: their rows are those of Spark's own stream-stream join on
the same files. Cases are out-of-order and late rows, null keys, outer rows and a restart in between."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

pytestmark = pytest.mark.spark

DELAYS = ("4 seconds", "2 seconds")
SCHEMA = "k int, ts timestamp, v string"
Row = dict[str, Any]
Batch = tuple[list[Row], list[Row]]
Build = Callable[[DataFrame, DataFrame], DataFrame]


@pytest.fixture(autouse=True)
def _sparks_timing(spark: SparkSession) -> Iterator[None]:
    """Rows are late and expire in the same batches as in Spark's own join."""
    spark.conf.set("spark.headrace.timing", "spark")
    yield
    spark.conf.unset("spark.headrace.timing")


def batches_of(seed: int, count: int = 5) -> list[Batch]:
    """Rows out of order, some of them late; the last batches move the watermark past all others."""
    draw = random.Random(seed)

    def row(batch: int, side: str) -> Row:
        second = max(0, batch * 8 + draw.randrange(-12, 8))
        return {"k": draw.choice([None, 0, 1, 2, 3]), "ts": stamp(second), "v": f"{side}{draw.random()}"}

    made: list[Batch] = [
        ([row(n, "l") for _ in range(20)], [row(n, "r") for _ in range(20 * (n != 2))])
        for n in range(1, count)
    ]
    far = [({"k": 99, "ts": stamp(900 + 60 * n), "v": f"{n}"}) for n in range(2)]
    return [*made, *(([{**one}], [{**one}]) for one in far)]


def stamp(second: int) -> str:
    return f"2030-01-01T00:{second // 60:02}:{second % 60:02}.000Z"


def write(folder: Path, batches: list[Batch], first: int) -> None:
    for number, batch in enumerate(batches, first):
        for side, rows in enumerate(batch):
            path = folder / str(side) / f"{number:04}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(json.dumps(row) for row in rows))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def streams(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    left = reader.json(str(folder / "0")).selectExpr("k", "ts as lt", "v as lv")
    right = reader.json(str(folder / "1")).selectExpr("bigint(k) as rk", "ts as rt", "v as rv")
    return left, right


def run(spark: SparkSession, folder: Path, name: str, build: Build) -> Counter[Any]:
    out: Counter[Any] = Counter()

    def collect(batch: DataFrame, number: int) -> None:
        out.update(tuple(row) for row in batch.collect())

    writer = build(*streams(spark, folder)).writeStream.foreachBatch(collect).outputMode("append")
    query = writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start()
    query.awaitTermination()
    return out


def ours(how: str, **options: Any) -> Build:
    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        streams = [
            hr.stream(df).withWatermark(time, delay)
            for df, time, delay in zip((left, right), ("lt", "rt"), DELAYS, strict=True)
        ]
        return streams[0].join(streams[1], on=[("k", "rk")], how=how, **options)

    return build


def theirs(how: str, lower: str, upper: str) -> Build:
    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        if how == "full_outer":
            left, right = without_nulls(left, right)
        a, b = left.withWatermark("lt", DELAYS[0]), right.withWatermark("rt", DELAYS[1])
        near = f"lt >= rt + interval {lower} and lt <= rt + interval {upper}"
        joined = a.join(b, (a.k == b.rk) & F.expr(near), how)
        if how in ("left_semi", "left_anti"):
            return joined.select("k", "lt", "lv")
        key = F.coalesce("k", "rk")
        return joined.select(F.when(key >= 0, key), "lt", "lv", "rt", "rv")

    return build


def without_nulls(left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Keys that no row of the other side has stand for nulls.

    Spark's full outer join of streams compares keys as bytes, so that null matches null. Its other joins
    of streams drop null keys beforehand, and its batch joins never match them; neither does SQL.
    """
    return left.withColumn("k", F.coalesce("k", F.lit(-1))), right.withColumn(
        "rk", F.coalesce("rk", F.lit(-2).cast("bigint"))
    )


def together(spark: SparkSession, folder: Path, builds: dict[str, Build], batches: list[Batch]) -> Any:
    """The rows of each query, stopped and started again after the third batch."""
    out = {name: Counter[Any]() for name in builds}
    for first, part in ((0, batches[:3]), (3, batches[3:])):
        write(folder, part, first)
        for name, build in builds.items():
            out[name] += run(spark, folder, name, build)
    return out


LONG = pytest.mark.long
CASES = [
    pytest.param("inner", "-5 seconds", "5 seconds", marks=LONG),
    pytest.param("left_outer", "0 seconds", "10 seconds", marks=LONG),
    pytest.param("right_outer", "-6 seconds", "3 seconds", marks=LONG),
    ("full_outer", "-9 seconds", "2 seconds"),
    pytest.param("left_semi", "-4 seconds", "4 seconds", marks=LONG),
]


@pytest.mark.parametrize(("how", "lower", "upper"), CASES)
def test_an_interval_join_is_sparks(
    spark: SparkSession, tmp_path: Path, how: str, lower: str, upper: str
) -> None:
    builds = {"ours": ours(how, between=(lower, upper)), "theirs": theirs(how, lower, upper)}
    out = together(spark, tmp_path, builds, batches_of(len(how)))
    assert out["ours"] == out["theirs"]
    assert len(out["ours"]) > 10


def drawn_case(seed: int) -> tuple[str, str, str]:
    """Any kind of join that Spark has, with any bounds."""
    draw = random.Random(seed)
    how = draw.choice(["inner", "left_outer", "right_outer", "full_outer", "left_semi"])
    lower, upper = sorted(draw.randrange(-12, 12) for _ in range(2))
    return how, f"{lower} seconds", f"{upper} seconds"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_any_interval_join_is_sparks(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    how, lower, upper = drawn_case(seed)
    builds = {"ours": ours(how, between=(lower, upper)), "theirs": theirs(how, lower, upper)}
    out = together(spark, tmp_path, builds, batches_of(seed, 7))
    assert out["ours"] == out["theirs"]


def test_state_is_cleaned_up(spark: SparkSession, tmp_path: Path) -> None:
    """In the end the watermark has passed all rows but the last ones of each stream."""
    write(tmp_path, batches_of(3), 0)
    joined = ours("full_outer", between=("-5 seconds", "5 seconds"))(*streams(spark, tmp_path))
    writer = joined.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    (batches,) = hr.progress(query).values()
    assert max(batch.keys for batch in batches) > 40
    assert batches[-1].keys <= 4


def batch_join(spark: SparkSession, folder: Path, how: str, near: str) -> Counter[Any]:
    """Spark's batch join of the same files."""
    left, right = (spark.read.schema(SCHEMA).json(str(folder / side)) for side in "01")
    a = left.selectExpr("k", "ts as lt", "v as lv")
    b = right.selectExpr("bigint(k) as rk", "ts as rt", "v as rv")
    joined = a.join(b, (a.k == b.rk) & F.expr(near), how)
    if how in ("left_semi", "left_anti"):
        return Counter(map(tuple, joined.select("k", "lt", "lv").collect()))
    return Counter(map(tuple, joined.select(F.coalesce("k", "rk"), "lt", "lv", "rt", "rv").collect()))


@pytest.mark.parametrize("how", ["left_anti", pytest.param("full_outer", marks=LONG)])
def test_python_workers_join_too(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Without late rows the stream's rows are those of a batch join; Spark has no anti join of streams."""
    before = spark.conf.get("spark.headrace.bridge")
    spark.conf.set("spark.headrace.bridge", "python")
    try:
        rows = [row for batch in batches_of(7, 4) for row in zip(*batch, strict=False)]
        sorted_rows = [sorted((pair[side] for pair in rows), key=lambda row: row["ts"]) for side in (0, 1)]
        batches = [tuple(side[at : at + 12] for side in sorted_rows) for at in range(0, len(rows), 12)]
        out = together(spark, tmp_path, {"ours": ours(how, between=("-5 seconds", "5 seconds"))}, batches)
    finally:
        spark.conf.set("spark.headrace.bridge", before)
    near = "lt between rt - interval 5 seconds and rt + interval 5 seconds"
    expected = batch_join(spark, tmp_path, how, near)
    last = {row for row in expected if row[0] == 99}
    assert out["ours"] == Counter({row: n for row, n in expected.items() if row not in last}) + Counter(
        {row: n for row, n in out["ours"].items() if row in last}
    )
    assert len(out["ours"]) > 5
