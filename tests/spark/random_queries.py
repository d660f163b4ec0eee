"""Random streaming queries of stateful operators, built twice: with Headrace's and with Spark's only.

A query is a pair of streams with watermarks and a chain of steps. Each step that Headrace can do is done by
Headrace or by Spark, at random, in the first build, and by Spark in the second.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

SECOND = 1_000_000
KEYS = ("a", "b", "c", None)
STREAMS = ("left", "right")


@dataclass(frozen=True)
class Step:
    """One stateful step; `ours` where the first build takes Headrace's operator."""

    kind: str  # tumbling, sliding, session, dedup, dedup_within
    seconds: int
    ours: bool


@dataclass(frozen=True)
class RandomQuery:
    seed: int
    delays: tuple[int, int]
    source: str  # one, union, join, outer, self_union
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = ", ".join(f"{'hr' if s.ours else 'spark'}.{s.kind}({s.seconds})" for s in self.steps)
        return f"seed {self.seed}: {self.source} {self.delays} → {steps}"


def draw(seed: int) -> RandomQuery:
    """The query of a seed; at least one of its steps is Headrace's."""
    dice = random.Random(seed)
    source = dice.choice(["one", "one", "union", "join", "outer", "self_union"])
    steps: list[Step] = []
    for place in range(dice.randint(1, 3)):
        kinds = ["tumbling", "sliding", "session"]
        if place == 0 and source in ("one", "union"):
            kinds += ["dedup", "dedup_within"]
        kind = dice.choice(kinds if place < 2 else ["tumbling"])
        steps.append(Step(kind, dice.choice([5, 10, 20]) * (place + 1), dice.random() < 0.6))
    windows = [at for at, step in enumerate(steps) if not step.kind.startswith("dedup")]
    if not windows:
        steps.append(Step("tumbling", 10, True))
    elif not any(steps[at].ours for at in windows):
        steps[windows[-1]] = Step(steps[windows[-1]].kind, steps[windows[-1]].seconds, True)
    return RandomQuery(seed, (dice.choice([0, 3, 10]), dice.choice([0, 5])), source, tuple(steps))


def files(seed: int, folder: Path, phases: int = 2, each: int = 3) -> list[list[tuple[Path, pa.Table]]]:
    """Files of two streams by phase: event times go forward, some rows are late, some files are empty."""
    dice, at, made = random.Random(seed + 1), 0, []
    for _ in range(phases):
        phase = []
        for _ in range(each):
            at += dice.choice([0, 5, 15, 40])
            for stream in STREAMS:
                rows = 0 if dice.random() < 0.15 else dice.randint(1, 8)
                times = [max(0, at + dice.randint(-25, 10)) * SECOND for _ in range(rows)]
                drawn = [(dice.choice(KEYS), time, dice.randint(0, 9)) for time in times]
                phase.append((folder / stream, _table(drawn)))
        made.append(phase)
    made[-1] += [(folder / stream, _table([("a", (at + 400) * SECOND, 1)])) for stream in STREAMS]
    return made


def _table(rows: list[tuple[str | None, int, int]]) -> pa.Table:
    keys, times, values = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "k": pa.array(keys, pa.string()),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "v": pa.array(values, pa.int64()),
        }
    )


def feed(phase: list[tuple[Path, pa.Table]]) -> None:
    for folder, table in phase:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.parquet")))
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1000 + number, 1000 + number))


def build(spark: SparkSession, query: RandomQuery, folder: Path, ours: bool) -> DataFrame:
    """The query as a streaming DataFrame, by Spark alone unless `ours`."""
    df, time = _source(spark, query, folder)
    for place, step in enumerate(query.steps):
        df, time = _step(df, time, step, place, ours and step.ours)
    return df


def _source(spark: SparkSession, query: RandomQuery, folder: Path) -> tuple[DataFrame, str]:
    left, right = (_stream(spark, folder / side) for side in ("left", "right"))
    first, second = (f"{delay} seconds" for delay in query.delays)
    left = left.withWatermark("ts", first)
    if query.source == "one":
        return left, "ts"
    if query.source == "self_union":
        return left.where("v < 5").union(left.where("v >= 4")), "ts"
    right = right.withWatermark("ts", second)
    if query.source == "union":
        return left.union(right), "ts"
    other = right.selectExpr("k as k2", "ts as ts2", "v as v2")
    near = F.expr("k = k2 and ts2 between ts - interval 10 seconds and ts + interval 10 seconds")
    joined = left.join(other, near, "inner" if query.source == "join" else "leftOuter")
    return joined.selectExpr("k", "ts", "v + coalesce(v2, 0) as v"), "ts"


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema("k string, ts timestamp, v long")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def _step(df: DataFrame, time: str, step: Step, place: int, ours: bool) -> tuple[DataFrame, str]:
    if step.kind == "dedup":
        return df.dropDuplicates(["k", "ts"]), time
    if step.kind == "dedup_within":
        return df.dropDuplicatesWithinWatermark(["k", "v"]), time
    width = f"{step.seconds} seconds"
    if ours:
        windows = {
            "tumbling": lambda: hr.tumbling(width, on=time),
            "sliding": lambda: hr.sliding(width, "5 seconds", on=time),
            "session": lambda: hr.session(width, on=time),
        }
        grouped = hr.stream(df).name(f"step{place}").groupBy("k", windows[step.kind]())
        return grouped.agg(v=hr.sum("v"), n=hr.count()).select("k", "window", "v", "n"), "window"
    at = F.window_time("window") if time == "window" else F.col(time)
    columns = {
        "tumbling": lambda: F.window(at, width),
        "sliding": lambda: F.window(at, width, "5 seconds"),
        "session": lambda: F.session_window(at, width),
    }
    if time == "window":
        df = df.withColumn("at", at).drop("window")
        at = F.col("at")
    grouped = df.groupBy("k", columns[step.kind]().alias("window"))
    return grouped.agg(F.sum("v").alias("v"), F.count("*").alias("n")).select(
        "k", "window", "v", "n"
    ), "window"
