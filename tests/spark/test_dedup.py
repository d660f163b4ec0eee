"""Protects dedup: rows of every batch are those of Spark's own dropDuplicates, and keys expire with the
watermark. The last row per key is that of a plain model. Aggregates in PySpark's forms are Spark's."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

pytestmark = pytest.mark.spark

SCHEMA = "id string, v long, ts timestamp"
Batches = dict[int, list[tuple[Any, ...]]]


def batches_of(seed: int, count: int) -> list[list[dict[str, Any]]]:
    draw = random.Random(seed)
    batches = []
    for number in range(count):
        rows = []
        for _ in range(draw.randrange(1, 30)):
            second = number * 40 + draw.randrange(0, 60)
            stamp = f"2030-01-01T00:{second // 60:02}:{second % 60:02}.{draw.randrange(1000):03}Z"
            rows.append({"id": f"u{draw.randrange(12)}", "v": draw.randrange(1000), "ts": stamp})
        batches.append(rows)
    return batches


def write(folder: Path, batches: list[list[dict[str, Any]]], first: int) -> None:
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(batches, first):
        path = folder / f"{number:04}.json"
        path.write_text("\n".join(json.dumps(row) for row in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run(spark: SparkSession, folder: Path, name: str, stream: Any) -> Batches:
    out: Batches = {}

    def collect(batch: DataFrame, number: int) -> None:
        out[number] = sorted(tuple(row) for row in batch.collect())

    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    query = (
        stream(source)
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return out


def rows_in(batches: Batches) -> list[tuple[Any, ...]]:
    return sorted(row for rows in batches.values() for row in rows)


def test_first_rows_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    ours: Batches = {}
    theirs: Batches = {}
    batches = batches_of(1, 5)
    for first, part in ((0, batches[:2]), (2, batches[2:])):  # a restart in between
        write(tmp_path / "in", part, first)
        ours |= run(spark, tmp_path, "ours", lambda df: hr.stream(df).dropDuplicates("id").select("id"))
        theirs |= run(spark, tmp_path, "theirs", lambda df: df.dropDuplicates(["id"]).select("id"))
    assert {batch: rows for batch, rows in ours.items() if rows} == {
        batch: rows for batch, rows in theirs.items() if rows
    }


def test_keys_expire_with_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """A plain model: late rows are dropped, a key is remembered for the time to live."""
    batches = batches_of(2, 6)
    write(tmp_path / "in", batches, 0)
    ours = run(
        spark,
        tmp_path,
        "ours",
        lambda df: (
            hr.stream(df)
            .withWatermark("ts", "10 seconds")
            .dropDuplicates("id", within="30 seconds")
            .select("id", F.unix_millis("ts"))
        ),
    )
    assert rows_in(ours) == expected_first(batches, delay_ms=10_000, ttl_ms=30_000)


def test_the_last_row_of_a_key_is_the_latest(spark: SparkSession, tmp_path: Path) -> None:
    batches = batches_of(3, 4)
    write(tmp_path / "in", batches, 0)
    ours = run(
        spark,
        tmp_path,
        "ours",
        lambda df: (
            hr.stream(df)
            .withWatermark("ts", "1 hour")
            .dropDuplicates("id", keep="last")
            .select("id", F.unix_millis("ts"))
        ),
    )
    newest: dict[str, int] = {}
    expected = []
    for rows in batches:
        latest: dict[str, int] = {}
        for row in rows:
            latest[row["id"]] = max(latest.get(row["id"], 0), millis(row["ts"]))
        for key, time in latest.items():
            if time > newest.get(key, -1):
                newest[key] = time
                expected.append((key, time))
    assert rows_in(ours) == sorted(expected)


def expected_first(
    batches: list[list[dict[str, Any]]], delay_ms: int, ttl_ms: int
) -> list[tuple[str, int]]:
    watermark = frontier = -(1 << 60)
    known: dict[str, int] = {}
    passed = []
    for rows in batches:
        timely = sorted((millis(row["ts"]), at, row["id"]) for at, row in enumerate(rows))
        for time, _, key in timely:
            if time <= watermark:
                continue
            if key not in known or known[key] + ttl_ms <= watermark:
                known[key] = time
                passed.append((key, time))
        frontier = max([frontier, *(millis(row["ts"]) for row in rows)])
        watermark = frontier - delay_ms
    return sorted(passed)


def millis(stamp: str) -> int:
    import datetime as dt

    return int(dt.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() * 1000 + 0.5)


def test_pyspark_forms_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", batches_of(4, 2), 0)
    written = [
        F.sum("v").alias("total"),
        F.count("*").alias("n"),
        F.avg(F.col("v") * 2).alias("mean"),
        F.max("v"),
        F.stddev("v").alias("spread"),
    ]
    ours = run(spark, tmp_path, "ours", lambda df: hr.stream(df).groupBy("id").agg(*written))
    batch = spark.read.schema(SCHEMA).json(str(tmp_path / "in")).groupBy("id").agg(*written)
    last = {row[0]: row for rows in ours.values() for row in rows}
    assert sorted(last.values()) == sorted(tuple(row) for row in batch.collect())
    names = hr.stream(spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))).groupBy("id")
    assert names.sum("v").columns == ["id", "sum(v)"]
    assert names.count().columns == ["id", "count"]
    assert names.agg({"v": "max", "*": "count"}).columns == ["id", "max(v)", "count(1)"]


FORMS: dict[str, Callable[[Any], Any]] = {
    "count": lambda groups: groups.count(),
    "sum of two": lambda groups: groups.sum("v", "w"),
    "dict": lambda groups: groups.agg({"v": "max", "w": "avg", "*": "count"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_short_forms_have_sparks_rows(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """One function for both: the grouped stream of Headrace, and Spark's grouped batch."""
    write(tmp_path / "in", batches_of(4, 2), 0)

    def rows(df: Any) -> Any:
        return df.withColumn("w", F.col("v") % 7)

    ours = run(spark, tmp_path, "ours", lambda df: FORMS[form](hr.stream(rows(df)).groupBy("id")))
    batch = FORMS[form](rows(spark.read.schema(SCHEMA).json(str(tmp_path / "in"))).groupBy("id"))
    last = {row[0]: row for listed in ours.values() for row in listed}
    assert sorted(last.values()) == sorted(tuple(row) for row in batch.collect())
