"""The streams that NEXMark's queries read, from one stream of events or from three."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headrace.generators.nexmark import schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELAY = "4 seconds"
SIDE_ROWS = 10_000
KINDS = ("person", "auction", "bid")  # in the order of `event_type`


@dataclass(frozen=True, eq=False)
class Streams:
    """Three streams with a watermark on `dateTime`, bids without one, and q13's static table and folder."""

    persons: DataFrame
    auctions: DataFrame
    bids: DataFrame
    plain_bids: DataFrame
    side_table: DataFrame
    side_path: str = ""


def streams_of(events: DataFrame, delay: str = DELAY) -> Streams:
    """The streams from wide rows: `event_type`, a struct per kind, `dateTime`."""
    flat = _flat(events)
    marked = flat.withWatermark("dateTime", delay)
    persons, auctions, bids = (_view(marked, number, kind) for number, kind in enumerate(KINDS))
    return Streams(persons, auctions, bids, _view(flat, 2, "bid"), side_table(events.sparkSession))


def read(spark: SparkSession, options: Mapping[str, str], *, only_bids: bool = False) -> Streams:
    """The streams from the source `nexmark` with its options; one source, so that joins meet early.

    `only_bids` generates no other events, which is quicker.
    """
    from headrace.spark.sources.nexmark import register

    register(spark)
    source = spark.readStream.format("nexmark").options(**options)
    if not only_bids:
        return streams_of(source.option("view", "all").load())
    bids = source.option("view", "bid").load()
    none = bids.where("false")
    return Streams(none, none, bids.withWatermark("dateTime", DELAY), bids, side_table(spark))


def side_table(spark: SparkSession) -> DataFrame:
    """The static table of q13: as many values as keys."""
    return spark.range(SIDE_ROWS).selectExpr("id AS key", "CAST(id AS STRING) AS value")


def _flat(events: DataFrame) -> DataFrame:
    """All fields as columns of their own, so that a file is read only as far as a query needs it.

    Spark prunes fields of structs below a projection, but not through a watermark.
    """
    fields = [
        F.col(f"{kind}.{name}").alias(f"{kind}_{name}")
        for kind in KINDS
        for name in schema(kind).names
        if name != "dateTime"
    ]
    return events.select("event_type", "dateTime", *fields)


def _view(events: DataFrame, number: int, kind: str) -> DataFrame:
    names = schema(kind).names
    columns = [F.col(name if name == "dateTime" else f"{kind}_{name}").alias(name) for name in names]
    return events.where(F.col("event_type") == number).select(*columns)
