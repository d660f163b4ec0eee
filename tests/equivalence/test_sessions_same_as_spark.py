"""Protects the promise that sessions are Spark's: random rows, out of order over micro-batches, give
the sessions and aggregates of Spark's own `session_window` over all rows at once, each session once."""

from __future__ import annotations

import datetime as dt
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

pytestmark = pytest.mark.spark

BATCHES, ROWS, GAP, DELAY = 5, 120, "7 seconds", "3 minutes"
START = dt.datetime(2024, 3, 31, 0, 40, tzinfo=dt.UTC)
SCHEMA = "k string, n int, ts timestamp, v bigint, d double, s string"
AGGREGATES = ("count", "sum", "min", "max", "avg", "stddev")


def rows_of(rng: random.Random, batch: int) -> list[tuple[Any, ...]]:
    """Times of a batch reach two minutes ahead, less than the delay; some are a whole gap apart."""
    sessions = []
    for index in range(ROWS):
        seconds = batch * 60 + rng.choice([rng.randrange(120), rng.randrange(18) * 7])
        late = dt.timedelta(seconds=seconds, microseconds=rng.choice([0, 1, index]))
        maybe = rng.random() < 0.1
        sessions.append(
            (
                None if maybe else rng.choice(["a", "b", "c", ""]),
                rng.randrange(3),
                START + late,
                None if rng.random() < 0.1 else rng.randrange(-50, 50),
                rng.randrange(-8, 8) / 4,
                rng.choice([None, "x", "long " * 20, ""]),
            )
        )
    return sessions


def written(spark: SparkSession, batches: list[list[tuple[Any, ...]]], folder: Path) -> DataFrame:
    """A stream that takes one batch at a time."""
    for number, rows in enumerate(batches):
        part = folder / "parts" / str(number)
        spark.createDataFrame(rows, SCHEMA).coalesce(1).write.parquet(str(part))
        (file,) = part.glob("*.parquet")
        target = folder / "in" / f"{number}.parquet"
        target.parent.mkdir(exist_ok=True)
        file.rename(target)
        os.utime(target, (1000 + number, 1000 + number))
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / "in"))


def run(result: DataFrame, checkpoint: Path) -> list[list[Any]]:
    came: list[list[Any]] = []
    writer = result.writeStream.foreachBatch(lambda rows, _: came.append(rows.collect()))
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()
    return came


def sparks(function: str) -> Column:
    return getattr(F, function)("v").alias(f"{function}_v")


def rounded(row: Any) -> tuple[Any, ...]:
    return tuple(round(value, 9) if isinstance(value, float) else value for value in row)


@pytest.mark.parametrize("number", [1, 2])
def test_sessions_are_sparks(spark: SparkSession, tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    batches = [rows_of(rng, batch) for batch in range(BATCHES)]
    flush = [("flush", 0, START + dt.timedelta(days=1), 0, 0.0, None)]
    stream = written(spark, [*batches, flush], tmp_path)
    mine = {f"{function}_v": getattr(hr, function)("v") for function in AGGREGATES}
    sessions = (
        hr.stream(stream)
        .withWatermark("ts", DELAY)
        .groupBy("k", "n", hr.session(GAP))
        .agg(**mine, rows=hr.count(), top=hr.max("s"), total=hr.sum("d"))
    )
    came = run(sessions, tmp_path / "checkpoint")
    whole = spark.createDataFrame([row for batch in batches for row in batch], SCHEMA)
    want = whole.groupBy("k", "n", F.session_window("ts", GAP).alias("window")).agg(
        *map(sparks, AGGREGATES),
        F.count("*").alias("rows"),
        F.max("s").alias("top"),
        F.sum("d").alias("total"),
    )
    got = [rounded(row) for batch in came for row in batch]
    assert sorted(got, key=repr) == sorted(map(rounded, want.collect()), key=repr)
    assert sum(map(bool, came)) > 2, "sessions must close while rows still come"
    assert sessions.columns == want.columns
