"""The sides of the `rmw` benchmark: each computes the same running count and sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class Side:
    """One side: Spark settings, the output mode and the plan."""

    name: str
    title: str
    plan: Callable[[Any, int], Any]  # (input DataFrame, partitions) → output DataFrame
    settings: dict[str, str] = field(default_factory=dict)


def _headrace(rows: Any, _partitions: int) -> Any:
    import headrace as hr

    return hr.stream(rows).groupBy("key").agg(n=hr.count(), total=hr.sum("amount"))


def _spark(rows: Any, _partitions: int) -> Any:
    from pyspark.sql import functions as F

    return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))


def floor(rows: Any, partitions: int, *keys: str) -> Any:
    """The same rows through the same shuffle and a Python stage that returns them."""
    spread = shuffled(rows, partitions, *keys)
    return spread.mapInArrow(_same, spread.schema)


def shuffled(rows: Any, partitions: int, *keys: str) -> Any:
    """The rows with the hash of their key, each in the partition of its key's state.

    Sets up the Spark session as building an operator does.
    """
    from pyspark.sql import functions as F

    from headrace.spark.build.session import LARGE

    for name, value in LARGE.items():
        rows.sparkSession.conf.set(name, value)
    hashed = rows.withColumn("hash", F.xxhash64(*keys))
    group = F.shiftrightunsigned("hash", 54)
    return hashed.repartitionById(partitions, (group * partitions / 1024).cast("int"))


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from headrace.spark.bridge.worker import sparing

    yield from sparing(batches)


_ROCKSDB = {"spark.sql.streaming.stateStore.providerClass": _PROVIDER}

_BRIDGE = "spark.headrace.bridge"

HEADRACE = Side("headrace", "Headrace", _headrace, {_BRIDGE: "auto"})
PYTHON = Side("python", "Headrace, Python workers", _headrace, {_BRIDGE: "python"})
FLOOR = Side("floor", "no state (floor)", lambda rows, partitions: floor(rows, partitions, "key"))
ROCKSDB = Side("rocksdb", "Spark, RocksDB", _spark, {**_ROCKSDB, _CHANGELOG: "false"})
CHANGELOG = Side("changelog", "Spark, RocksDB + changelog", _spark, {**_ROCKSDB, _CHANGELOG: "true"})
