"""The floor of a query: its rows without state, hashed, shuffled and sent to Python.

A query that is compared with Spark has a floor of its own: the rows that its first stateful operator gets.
The others have all columns of the streams that they read; those that read the same streams share a floor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from headrace.bench.common.sides import shuffled
from headrace.bench.nexmark.spark import INPUTS
from headrace.nexmark.registry import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.nexmark.streams import Streams

KEYS = {"bids": "auction", "auctions": "id", "persons": "id"}


def floor_of(query: str) -> str:
    """The name of a query's floor: the query itself, or its streams."""
    return query if query in INPUTS else "+".join(sorted(streams_read(query)))


def streams_read(query: str) -> set[str]:
    """The streams of a query, without static tables."""
    if query == "dedup":
        return {"bids"}
    inputs = {"bids" if name == "plain_bids" else name for name in QUERIES[query].inputs}
    return inputs & KEYS.keys()


def has_bids(floor: str) -> bool:
    """Whether a floor reads bids."""
    return "bids" in (streams_read(floor) if floor in INPUTS else floor.split("+"))


def rows(floor: str, streams: Streams, partitions: int) -> DataFrame:
    """The rows of a floor; nothing is returned, because most queries return little."""
    if floor in INPUTS:
        sides = INPUTS[floor](streams)
    else:
        sides = [(getattr(streams, name), KEYS[name]) for name in floor.split("+")]
    views = []
    for number, (view, key) in enumerate(sides):
        renamed = {column: f"{column}_{number}" for column in view.columns}
        views.append(view.withColumnsRenamed(renamed).withColumn("key", F.col(f"{key}_{number}")))
    union = views[0]
    for view in views[1:]:
        union = union.unionByName(view, allowMissingColumns=True)
    spread = shuffled(union, partitions, "key")
    return spread.mapInArrow(_consumed, spread.schema)


def _consumed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from headrace.spark.bridge.worker import sparing

    for _ in sparing(batches):
        pass
    yield from ()
