"""Protects state against deaths in the middle of user code: the worker dies between two blocks of writes;
the worker or the host dies inside a timer callback. Spark's retry, or a restart, gives every row once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processor_case import FAR, SCHEMA, prepared, write_batches
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headrace as hr
from headrace.spark.driver.driver import coordinator_for
from headrace.spark.processors.blocks import BLOCK_ROWS

pytestmark = pytest.mark.spark

Rows = Counter[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def engines(spark: SparkSession) -> Iterator[None]:
    with prepared(spark, sys.modules[__name__]):
        yield


class Mortal(StatefulProcessor):  # type: ignore[misc]
    """Uses all states and timers; one process dies at `place`, once: a file says that it is over."""

    def __init__(self, mark: Path, place: str, victim: int = 0) -> None:
        self.mark, self.place, self.victim = str(mark), place, victim

    def init(self, handle: Any) -> None:
        self.handle, self.calls = handle, 0
        self.count = handle.getValueState("count", "n long")
        self.values = handle.getListState("values", "v long")
        self.by_value = handle.getMapState("by_value", "v long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        self.calls += 1
        if self.calls > BLOCK_ROWS:  # the writes of a block are with the host
            self._die("between blocks")
        for row in rows:
            n = (self.count.get()[0] if self.count.exists() else 0) + 1
            self.count.update((n,))
            self.values.appendValue((row.v,))
            before = self.by_value.getValue((row.v,))
            self.by_value.updateValue((row.v,), ((before.n if before else 0) + 1,))
            self.handle.registerTimer(int(row.ts.timestamp() * 1000) + row.v)
        yield Row(id=key[0], what="rows", n=n, seen=self._seen())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        n = self.count.get()[0]
        self.count.update((n + 100,))
        self.values.clear()
        self._die("timer")
        yield Row(id=key[0], what="timer", n=n, seen=self._seen())

    def _seen(self) -> str:
        counts = sorted((v, n) for (v,), (n,) in self.by_value.iterator())
        return str([[v for (v,) in self.values.get()], counts, sorted(self.handle.listTimers())])

    def _die(self, place: str) -> None:
        import os
        import signal

        if place == self.place and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(self.victim or os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        pass


def collected(spark: SparkSession, folder: Path, name: str, processor: StatefulProcessor) -> Rows:
    """The rows of a query, each batch as it was last; a query that fails is started again once."""
    batches: dict[int, Rows] = {}

    def collect(batch: DataFrame, number: int) -> None:
        batches[number] = Counter(tuple(row) for row in batch.collect())

    def start() -> None:
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
        timed = hr.stream(source).withWatermark("ts", "10 seconds").groupBy("id")
        results = timed.transformWithState(
            processor, "id string, what string, n long, seen string", "Update", "EventTime"
        )
        writer = results.writeStream.foreachBatch(collect).outputMode("update")
        writer.option("checkpointLocation", str(folder / name)).trigger(
            availableNow=True
        ).start().awaitTermination()

    try:
        start()
    except StreamingQueryException:
        start()
    return sum(batches.values(), Counter())


def small(count: int) -> list[list[dict[str, Any]]]:
    rows = [{"id": f"u{v % 5}", "v": v % 7, "ts": f"2030-01-01T00:00:{v % 60:02}Z"} for v in range(count)]
    last = [[{"id": "end", "v": v, "ts": FAR}] for v in (1, 2)]
    return [rows[: count // 2], rows[count // 2 :], *last]


def wide(count: int) -> list[list[dict[str, Any]]]:
    """More keys in each of three partitions than a block has."""
    rows = [{"id": f"u{v}", "v": v % 7, "ts": "2030-01-01T00:00:00Z"} for v in range(count)]
    return [rows, rows[:2000]]


def host(spark: SparkSession) -> int:
    return next(iter(coordinator_for(spark).hosts().values())).pid


@pytest.mark.parametrize(
    ("place", "victim", "batches"),
    [
        ("timer", lambda _: 0, small(120)),
        ("timer", host, small(120)),
        ("between blocks", lambda _: 0, wide(3 * BLOCK_ROWS + 6000)),
    ],
    ids=["worker in a timer", "host in a timer", "worker between blocks"],
)
def test_a_death_inside_of_user_code_changes_nothing(
    spark: SparkSession,
    tmp_path: Path,
    place: str,
    victim: Callable[[SparkSession], int],
    batches: list[list[dict[str, Any]]],
) -> None:
    write_batches(tmp_path / "in", batches)
    alive = collected(spark, tmp_path, "alive", Mortal(tmp_path / "never", "nowhere"))
    killed = collected(spark, tmp_path, "killed", Mortal(tmp_path / "died", place, victim(spark)))
    assert (tmp_path / "died").exists()
    assert killed == alive
    assert {what for _, what, _, _ in alive} == ({"rows", "timer"} if place == "timer" else {"rows"})
