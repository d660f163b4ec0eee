"""Queries over fixed rows, one for each store, and what Spark computes from the same rows in one batch.

The folders in `tests/data/state-0.1` were written by this file with the code of version 0.1; its README
gives the command. Batches 0 to 3 are the old ones. No row is late, and the last batch closes all windows.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr

ROOT = "@ROOT@"  # in the stored files, the folder of checkpoint and input
OLD, NEW, ROWS = 4, 3, 24
BATCH_S, JITTER_S, DELAY_S = 20, 5, 10
START = datetime(2024, 3, 1, tzinfo=UTC)
OLD_WATERMARK = START + timedelta(seconds=OLD * BATCH_S - 0.5 - DELAY_S)
SCHEMA = "user string, item long, ts timestamp, amount double, price decimal(20,4), note string"
LAST_USER = "end"

_USERS = (None, "", "ada", "grace", "a name that is long enough to be stored in the heap")
_NOTES = (None, "a", "bb", "a note that is long enough to be stored in the heap")

Row = tuple[str | None, int, datetime, float, Decimal, str | None]


def batch(number: int) -> list[Row]:
    """The rows of one file. The newest row of a file is on both sides of the join."""
    if number == OLD + NEW - 1:
        return [_row(LAST_USER, item, START + timedelta(days=1), 0, None) for item in (0, 1)]
    draw = random.Random(number)
    rows = []
    for place in range(ROWS):
        second = number * BATCH_S + draw.randrange(-JITTER_S, BATCH_S - 1)
        at = START + timedelta(seconds=max(0, second), microseconds=place + 1)
        rows.append(
            _row(draw.choice(_USERS), draw.randrange(4), at, draw.randrange(-80, 80), draw.choice(_NOTES))
        )
    newest = START + timedelta(seconds=(number + 1) * BATCH_S - 0.5)
    return [*rows, _row("newest", 0, newest, 1, "n"), _row("newest", 1, newest, 2, "n")]


def _row(user: str | None, item: int, at: datetime, eighths: int, note: str | None) -> Row:
    return user, item, at, eighths / 8, Decimal(eighths) / 16, note


def write_batches(folder: Path, numbers: range) -> None:
    """Write one file per batch; Spark reads them in the order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        user, item, at, amount, price, note = zip(*batch(number), strict=True)
        table = pa.table(
            {
                "user": pa.array(user, pa.string()),
                "item": pa.array(item, pa.int64()),
                "ts": pa.array(at, pa.timestamp("us", tz="UTC")),
                "amount": pa.array(amount, pa.float64()),
                "price": pa.array(price, pa.decimal128(20, 4)),
                "note": pa.array(note, pa.string()),
            }
        )
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1000 + number, 1000 + number))


@dataclass(frozen=True)
class Case:
    """A streaming query, and the same results as a batch query. Results begin with key and window."""

    stream: Callable[[DataFrame], DataFrame]
    batch: Callable[[DataFrame], DataFrame]
    keys: tuple[str, ...] = ("user", "item", "start", "end")


def _marked(rows: DataFrame) -> hr.Stream:
    return hr.stream(rows).withWatermark("ts", f"{DELAY_S} seconds").name("op")


def _shown(results: DataFrame) -> DataFrame:
    rest = [name for name in results.columns if name not in ("user", "item", "window", "session_window")]
    window = "session_window" if "session_window" in results.columns else "window"
    bounds = [f"unix_micros({window}.{bound}) AS {bound}" for bound in ("start", "end")]
    return results.selectExpr("user", "item", *bounds, *rest)


_FOLDS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "n": (lambda: hr.count(), lambda: F.count("*")),
    "total": (lambda: hr.sum("amount"), lambda: F.sum("amount")),
    "paid": (lambda: hr.sum("price"), lambda: F.sum("price")),
    "mean": (lambda: hr.avg("amount"), lambda: F.avg("amount")),
    "least": (lambda: hr.min("note"), lambda: F.min("note")),
    "most": (lambda: hr.max("amount"), lambda: F.max("amount")),
}
_HOLISTICS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "n": (lambda: hr.count(), lambda: F.count("*")),
    "middle": (lambda: hr.median("amount"), lambda: F.median("amount")),
    "notes": (lambda: hr.collect_set("note"), lambda: F.array_sort(F.collect_set("note"))),
}


def _grouped(
    window: Any, spark_window: Any, store: str = "auto", functions: Any = None, **options: Any
) -> Case:
    pairs = functions or _FOLDS

    def stream(rows: DataFrame) -> DataFrame:
        groups = _marked(rows).store(store).groupBy("user", "item", window())
        return _shown(groups.agg(**options, **{name: make() for name, (make, _) in pairs.items()}))

    def batch(rows: DataFrame) -> DataFrame:
        groups = rows.groupBy("user", "item", spark_window().alias("window"))
        return _shown(groups.agg(*(make().alias(name) for name, (_, make) in pairs.items())))

    return Case(stream, batch)


def _running() -> Case:
    def stream(rows: DataFrame) -> DataFrame:
        return (
            hr.stream(rows)
            .name("op")
            .groupBy("user", "item")
            .agg(**{n: f() for n, (f, _) in _FOLDS.items()})
        )

    def batch(rows: DataFrame) -> DataFrame:
        return rows.groupBy("user", "item").agg(*(make().alias(name) for name, (_, make) in _FOLDS.items()))

    return Case(stream, batch, ("user", "item"))


def _applied() -> Case:
    def stream(rows: DataFrame) -> DataFrame:
        def summary(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
            user, item, (start, end) = key
            notes = sorted(note for note in table["note"].to_pylist() if note is not None)
            columns = {
                "user": pa.array([user.as_py()], pa.string()),
                "item": [item.as_py()],
                "start": [start.cast(pa.int64()).as_py()],
                "end": [end.cast(pa.int64()).as_py()],
                "n": [table.num_rows],
                "notes": [",".join(notes)],
            }
            return pa.table(columns)

        schema = "user string, item long, start long, end long, n long, notes string"
        groups = _marked(rows).groupBy("user", "item", hr.tumbling("30 seconds"))
        return groups.applyInArrow(summary, schema)

    def batch(rows: DataFrame) -> DataFrame:
        notes = F.array_join(F.array_sort(F.collect_list("note")), ",")
        groups = rows.groupBy("user", "item", F.window("ts", "30 seconds").alias("window"))
        return _shown(groups.agg(F.count("*").alias("n"), notes.alias("notes")))

    return Case(stream, batch)


def _sides(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    left = rows.where("item % 2 = 0").selectExpr("user", "ts AS seen", "amount AS high", "note")
    right = rows.where("item % 2 = 1").selectExpr("user", "ts AS sold", "price AS low", "item AS number")
    return left, right


def _joined() -> Case:
    columns = ("user", "unix_micros(window.start) AS start", "unix_micros(window.end) AS end")
    rest = ("seen", "sold", "high", "note", "low", "number")

    def stream(rows: DataFrame) -> DataFrame:
        (left, right), delay = _sides(rows), f"{DELAY_S} seconds"
        sales = hr.stream(right).withWatermark("sold", delay)
        seen = hr.stream(left).withWatermark("seen", delay).name("op")
        out = seen.join(sales, on="user", window=hr.tumbling("30 seconds"), how="full")
        return out.selectExpr(*columns, *rest)

    def batch(rows: DataFrame) -> DataFrame:
        left, right = _sides(rows)
        left = left.withColumn("window", F.window("seen", "30 seconds"))
        right = right.withColumn("window", F.window("sold", "30 seconds"))
        return left.join(right, ["user", "window"], "full").selectExpr(*columns, *rest)

    return Case(stream, batch, ("user", "start", "end", "seen", "sold"))


def _tumbling() -> Any:
    return F.window("ts", "30 seconds")


def _sliding() -> Any:
    return F.window("ts", "30 seconds", "10 seconds")


def _session() -> Any:
    return F.session_window("ts", "4 seconds")


CASES: dict[str, Case] = {
    "running": _running(),
    "tumbling": _grouped(lambda: hr.tumbling("30 seconds"), _tumbling),
    "changes": _grouped(lambda: hr.tumbling("30 seconds"), _tumbling, emit="changes"),
    "sliding": _grouped(lambda: hr.sliding("30 seconds", "10 seconds"), _sliding),
    "session": _grouped(lambda: hr.session("4 seconds"), _session),
    "aar": _grouped(lambda: hr.tumbling("30 seconds"), _tumbling, functions=_HOLISTICS),
    "aur": _grouped(lambda: hr.session("4 seconds"), _session, functions=_HOLISTICS),
    "range": _grouped(lambda: hr.sliding("30 seconds", "10 seconds"), _sliding, "range", _HOLISTICS),
    "memory": _grouped(lambda: hr.tumbling("30 seconds"), _tumbling, "memory"),
    "auto": _applied(),
    "rocksdb": _grouped(lambda: hr.tumbling("30 seconds"), _tumbling, "rocksdb"),
    "rocksdb_rows": _grouped(lambda: hr.session("4 seconds"), _session, "rocksdb", _HOLISTICS),
    "join": _joined(),
}


def run(spark: SparkSession, name: str, root: Path) -> list[tuple[Any, ...]]:
    """Run a query over the files that it has not read; returns its results in the order of the batches."""
    got: list[tuple[Any, ...]] = []

    def collect(rows: DataFrame, number: int) -> None:
        got.extend(map(tuple, rows.collect()))

    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(root / "in"))
    writer = CASES[name].stream(rows).writeStream.foreachBatch(collect)
    writer = writer.option("checkpointLocation", str(root / "ck")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return got


def place(data: Path, root: Path) -> None:
    """Copy a stored checkpoint to `root`; the records that name its folder then name this one."""
    shutil.copytree(data, root / "ck")
    for path in _with_folders(root / "ck"):
        path.write_text(path.read_text().replace(ROOT, str(root)))


def _with_folders(checkpoint: Path) -> list[Path]:
    """The files that name a folder: records of operators, and Spark's lists of input files."""
    return [*(checkpoint / "headrace-operators").iterdir(), *(checkpoint / "sources").glob("*/*")]


def main(scratch: Path, data: Path) -> None:
    """Write the old batches of every case with the code that is on the path."""
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    settings |= {"spark.headrace.partitions": "2", "spark.headrace.state.local": str(scratch / "local")}
    settings |= {"spark.ui.enabled": "false", "spark.headrace.memory": "64m"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    for name in CASES:
        root = scratch / name
        write_batches(root / "in", range(OLD))
        run(spark, name, root)
        shutil.copytree(root / "ck", data / name, ignore=shutil.ignore_patterns("*.crc"))
        for path in _with_folders(data / name):
            path.write_text(path.read_text().replace(str(root), ROOT))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
