"""Queries over JSON files for the tests of processors: the same files through both engines."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import processor_classes
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
SCHEMA = "id string, v long, ts timestamp"
FAR = "2031-01-01T00:00:00Z"

Rows = Counter[tuple[Any, ...]]


@contextmanager
def prepared(spark: SparkSession, *modules: ModuleType, empty_batches: bool = False) -> Iterator[None]:
    """Spark's RocksDB store, and test modules that workers cannot import."""
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, PROVIDER)
    spark.conf.set(EMPTY_BATCHES, str(empty_batches).lower())
    by_value = [processor_classes, sys.modules[__name__], *modules]
    by_value = [
        one
        for one in by_value
        if one.__name__ not in cloudpickle.cloudpickle.list_registry_pickle_by_value()
    ]
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)
        spark.conf.set(name, before)
        spark.conf.unset(EMPTY_BATCHES)


def write_batches(folder: Path, batches: list[list[dict[str, Any]]], first: int = 0) -> None:
    """One file, and so one batch, per list of rows."""
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(batches, first):
        path = folder / f"{number:04}.json"
        path.write_text("\n".join(json.dumps(row) for row in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def random_batches(seed: int, count: int = 4) -> list[list[dict[str, Any]]]:
    """Batches of a minute each, and two batches far behind that close all windows."""
    draw = random.Random(seed)
    batches = []
    for number in range(count):
        rows = []
        for _ in range(draw.randrange(1, 25)):
            second = number * 60 + draw.randrange(0, 90)
            stamp = f"2030-01-01T00:{second // 60:02}:{second % 60:02}.{draw.randrange(1000):03}Z"
            rows.append({"id": f"u{draw.randrange(4)}", "v": draw.randrange(60), "ts": stamp})
        batches.append(rows)
    return [*batches, [{"id": "end", "v": 1, "ts": FAR}], [{"id": "end", "v": 1, "ts": FAR}]]


def run(
    spark: SparkSession,
    folder: Path,
    name: str,
    stream: Callable[[DataFrame], DataFrame],
    mode: str = "update",
) -> Rows:
    """The rows of a query over the files of `folder / "in"`; its checkpoint is `folder / name`."""
    rows: Rows = Counter()

    def collect(batch: DataFrame, _: int) -> None:
        rows.update(tuple(row) for row in batch.collect())

    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    query = (
        stream(source)
        .writeStream.foreachBatch(collect)
        .outputMode(mode)
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows
