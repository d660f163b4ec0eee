"""FlowKV's queries without their state: the rows and columns of each, hashed, shuffled and sent to Python.

Nothing is returned, because windows return little. A store that took no time would be as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from headrace.bench.common.sides import shuffled

COLUMNS = {  # of a bid; the key is first
    "q5": ("auction", "dateTime"),
    "q5_append": ("auction", "dateTime"),
    "q7": ("bidder", "auction", "price", "dateTime"),
    "q7_session": ("bidder", "price", "dateTime"),
    "q11": ("bidder", "dateTime"),
    "q11_median": ("bidder", "price", "dateTime"),
    "q12": ("bidder",),
}


def query(name: str, partitions: int, *streams: Any) -> Any:
    """The query's input, without its computation."""
    if name == "q8":
        persons, auctions = streams
        opened = auctions.select(F.col("seller").alias("id"), F.lit(None).alias("name"), "dateTime")
        rows, key = persons.select("id", "name", "dateTime").unionAll(opened), "id"
    else:
        (bids,) = streams
        rows, key = bids.select(*COLUMNS[name]), COLUMNS[name][0]
    spread = shuffled(rows, partitions, key)
    return spread.mapInArrow(_consumed, spread.schema)


def _consumed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from headrace.spark.bridge.worker import sparing

    for _ in sparing(batches):
        pass
    yield from ()
