"""The floor of a query: all columns of the streams that it reads, hashed, shuffled and sent to Python.

Queries that read the same streams share a floor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from headrace.bench.common.sides import shuffled
from headrace.nexmark.registry import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.nexmark.streams import Streams

KEYS = {"bids": "auction", "auctions": "id", "persons": "id"}


def floor_of(query: str) -> str:
    """The name of a query's floor: its streams."""
    if query == "dedup":
        return "bids"
    inputs = {"bids" if name == "plain_bids" else name for name in QUERIES[query].inputs}
    return "+".join(sorted(inputs & KEYS.keys()))


def rows(floor: str, streams: Streams, partitions: int) -> DataFrame:
    """The rows of a floor; nothing is returned, because most queries return little."""
    views = []
    for name in floor.split("+"):
        view: DataFrame = getattr(streams, name)
        renamed = {column: f"{name}_{column}" for column in view.columns}
        views.append(view.withColumnsRenamed(renamed).withColumn("key", F.col(f"{name}_{KEYS[name]}")))
    union = views[0]
    for view in views[1:]:
        union = union.unionByName(view, allowMissingColumns=True)
    spread = shuffled(union, partitions, "key")
    return spread.mapInArrow(_consumed, spread.schema)


def _consumed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from headrace.spark.task.worker import sparing

    for _ in sparing(batches):
        pass
    yield from ()
