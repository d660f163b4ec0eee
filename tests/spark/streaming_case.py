"""A small streaming query over files, to stop, damage, change and restart."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.spark.driver.driver import RunningCoordinator, coordinator_for
from headrace.testing.state_reader import StateAt, read_state

Event = tuple[str | None, int, float]  # user, second, amount
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """Files of (user, ts, amount), one per batch, and one checkpoint of a query over them."""

    spark: SparkSession
    inputs: Path
    checkpoint: Path

    @property
    def state(self) -> Path:
        return self.checkpoint / "headrace-state"

    @property
    def coordinator(self) -> RunningCoordinator:
        return coordinator_for(self.spark)

    def feed(self, *events: Event) -> None:
        self.inputs.mkdir(parents=True, exist_ok=True)
        number = len(list(self.inputs.glob("*.parquet")))
        users, seconds, amounts = zip(*events, strict=True)
        times = pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", tz="UTC"))
        table = pa.table({"user": pa.array(users, pa.string()), "ts": times, "amount": amounts})
        path = self.inputs / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1000 + number, 1000 + number))  # Spark takes files in the order of their times

    def source(self) -> DataFrame:
        reader = self.spark.readStream.schema("user string, ts timestamp, amount double")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self.inputs))

    def totals(self, **changed: Any) -> DataFrame:
        """A running count and sum per user, named `totals`."""
        aggregates = {"n": hr.count(), "total": hr.sum("amount"), **changed}
        return hr.stream(self.source()).name("totals").groupBy("user").agg(**aggregates)

    def run(self, df: DataFrame, write: Callable[[DataFrame, int], None] | None = None) -> Rows:
        """Run what there is to run; the rows that reached the sink, each after its batch."""
        got: Rows = []

        def collect(batch: DataFrame, number: int) -> None:
            got.extend((number, *row) for row in batch.collect())

        writer = df.writeStream.option("checkpointLocation", str(self.checkpoint))
        query = writer.foreachBatch(write or collect).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(got, key=repr)

    def refusal(self, df: DataFrame) -> str:
        """What a query that must not run says."""
        with pytest.raises(StreamingQueryException) as refused:
            self.run(df)
        return str(refused.value)

    def state_at(self, version: int, operator: str = "totals") -> StateAt:
        query = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return read_state(self.state, query, operator, version)

    def files(self) -> dict[str, bytes]:
        """Every file of the state, to see that nothing touches it."""
        paths = (path for path in self.state.rglob("*") if path.is_file())
        return {str(path.relative_to(self.state)): path.read_bytes() for path in paths}

    def copied(self, to: Path) -> Case:
        """The same query as after a move to another folder; no host has its state in memory."""
        shutil.copytree(self.checkpoint, to)
        return replace(self, checkpoint=to)

    def kill_hosts(self) -> list[int]:
        pids = [host.pid for host in self.coordinator.hosts().values()]
        for pid in pids:
            with suppress(ProcessLookupError):  # a host that died a moment ago still counts as heard
                os.kill(pid, signal.SIGKILL)
        return pids


def finished_case(spark: SparkSession, folder: Path) -> Case:
    """Three batches that are done and a fourth that waits, which must find `FOURTH`."""
    case = Case(spark, folder / "in", folder / "ck")
    case.feed(("a", 0, 1.0), ("b", 1, 2.0), ("c", 2, 3.0), (None, 3, 4.0))
    case.feed(("a", 10, 0.5), ("d", 11, 1.0))
    case.feed(("a", 20, 0.25), ("b", 21, 0.5), ("e", 22, 8.0))
    case.run(case.totals())
    case.feed(("a", 30, 1.0), ("b", 31, 1.0), ("c", 32, 1.0), ("d", 33, 1.0), ("e", 34, 1.0))
    return case


FOURTH: Rows = [(3, "a", 4, 2.75), (3, "b", 3, 3.5), (3, "c", 2, 4.0), (3, "d", 2, 2.0), (3, "e", 2, 9.0)]
