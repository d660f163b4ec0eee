"""`headrace bench bootstrap`: a new query gets its state from a Parquet table, here and in Spark.

The table has a count and a sum per key. Here it is written as initial state (`hr.write_state`), and one
batch over known keys proves that the query goes on from it. Spark's side is the same state for a processor
of `transformWithStateInPandas`, by its `initialState`; it gets fewer keys, because it takes long.
Each side has its own Spark application; a small write warms each up.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from rich.console import Console

import headrace as hr
from headrace.bench.common import report
from headrace.bench.common.session import local_session, sole_session
from headrace.clock import SystemClock

PARTITIONS = 2
SCHEMA = "key bigint, n bigint, total double"
WARM_KEYS = 1000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Size:
    """Keys of each side."""

    ours: int
    sparks: int


FULL, QUICK = Size(10_000_000, 200_000), Size(1_000_000, 20_000)


@dataclass(frozen=True)
class Outcome:
    """Keys of one side, and how long it took until the first batch after them was done."""

    keys: int
    seconds: float

    @property
    def keys_per_s(self) -> float:
        return self.keys / self.seconds


class Totals(StatefulProcessor):  # type: ignore[misc]
    """A count and a sum per key in a value state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("totals", "n bigint, total double")

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        row = initialState.iloc[0]
        self._state.update((int(row["n"]), float(row["total"])))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[Any]:
        n, total = self._state.get() if self._state.exists() else (0, 0.0)
        for frame in rows:
            n, total = n + len(frame), total + float(frame["amount"].sum())
        self._state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        pass


def run(*, quick: bool = False, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    return measure(QUICK if quick else FULL, console or Console(stderr=True))


def measure(size: Size, console: Console) -> str:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        settings = {"spark.headrace.partitions": str(PARTITIONS)}
        with local_session("headrace-bench-bootstrap", scratch / "ours", PARTITIONS, settings) as spark:
            _ours(spark, scratch / "warm-ours", WARM_KEYS, console)
            ours = _ours(spark, scratch / "main-ours", size.ours, console)
        rocksdb = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}
        with sole_session("spark-bench-bootstrap", scratch / "sparks", PARTITIONS, rocksdb) as spark:
            _sparks(spark, scratch / "warm-sparks", WARM_KEYS, console)
            sparks = _sparks(spark, scratch / "main-sparks", size.sparks, console)
    return _report(ours, sparks, console)


def _ours(spark: Any, folder: Path, keys: int, console: Console) -> Outcome:
    table, events = _inputs(spark, folder, keys)
    console.print(f"Headrace: initial state of {keys:,} keys …")
    totals = hr.stream(events).name("totals").groupBy("key").agg(n=hr.count(), total=hr.sum("amount"))
    clock = SystemClock()
    begin_ms = clock.now_ms()
    hr.write_state(spark.read.parquet(str(table)), str(folder / "checkpoint"), "totals", stream=totals)
    _goes_on(totals, folder, keys)
    return Outcome(keys, (clock.now_ms() - begin_ms) / 1000)


def _sparks(spark: Any, folder: Path, keys: int, console: Console) -> Outcome:
    table, events = _inputs(spark, folder, keys)
    console.print(f"Spark's initialState: {keys:,} keys …")
    clock = SystemClock()
    begin_ms = clock.now_ms()
    initial = spark.read.parquet(str(table)).groupBy("key")
    totals = events.groupBy("key").transformWithStateInPandas(
        Totals(), SCHEMA, "Update", "None", initialState=initial
    )
    _goes_on(totals, folder, keys)
    return Outcome(keys, (clock.now_ms() - begin_ms) / 1000)


def _inputs(spark: Any, folder: Path, keys: int) -> tuple[Path, Any]:
    """The table, and a stream with one row for each of ten of its keys."""
    table, events = folder / "table", folder / "events"
    spark.range(keys).selectExpr("id AS key", "id % 100 AS n", "id * 0.5D AS total").write.parquet(
        str(table)
    )
    rows = spark.range(10).selectExpr(f"id * {keys // 10} AS key", "1.0D AS amount")
    rows.coalesce(1).write.parquet(str(events))
    return table, spark.readStream.schema("key bigint, amount double").parquet(str(events))


def _goes_on(totals: Any, folder: Path, keys: int) -> None:
    """Runs one batch, whose rows must continue those of the table."""
    got: dict[int, tuple[int, float]] = {}

    def collect(batch: Any, _: int) -> None:
        got.update({row.key: (row.n, row.total) for row in batch.collect()})

    writer = totals.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.outputMode("update").foreachBatch(collect).trigger(availableNow=True).start()
    query.awaitTermination()
    expected = {key: (key % 100 + 1, key * 0.5 + 1) for key in range(0, 10 * (keys // 10), keys // 10)}
    if got != expected:
        raise AssertionError(f"the query went on from other state: {got}, expected {expected}")


def _report(ours: Outcome, sparks: Outcome, console: Console) -> str:
    sides = (("Headrace, write_state", ours), ("Spark, initialState", sparks))
    rows = [(name, f"{one.keys:,}", f"{one.seconds:.1f}", f"{one.keys_per_s:,.0f}") for name, one in sides]
    report.show(
        console, "Initial state from Parquet, first batch included", ("", "keys", "s", "keys/s"), rows
    )
    return report.last_line(
        "bootstrap",
        {"vs_spark_per_key": ours.keys_per_s / sparks.keys_per_s},
        keys={"headrace": ours.keys, "spark": sparks.keys},
        seconds={"headrace": round(ours.seconds, 1), "spark": round(sparks.seconds, 1)},
        keys_per_s={"headrace": round(ours.keys_per_s), "spark": round(sparks.keys_per_s)},
    )
