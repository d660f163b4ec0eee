"""The queries that Spark's own operators can express, and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import headrace as hr
from headrace.nexmark.joins import STATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.nexmark.streams import Streams

    Input = tuple[DataFrame, str]


def q3_inputs(streams: Streams) -> list[Input]:
    items = streams.auctions.where("category = 10").select("seller", F.col("id").alias("auction"))
    people = streams.persons.where(F.col("state").isin(*STATES)).select("id", "name", "city", "state")
    return [(items, "seller"), (people, "id")]


def q8_inputs(streams: Streams) -> list[Input]:
    people = streams.persons.select("id", "name", "dateTime")
    return [(people, "id"), (streams.auctions.select("seller", "dateTime"), "seller")]


def q20_inputs(streams: Streams) -> list[Input]:
    items = streams.auctions.where("category = 10").withColumnsRenamed(
        {"dateTime": "auction_dateTime", "extra": "auction_extra"}
    )
    return [(streams.bids, "auction"), (items, "id")]


def dedup_inputs(streams: Streams) -> list[Input]:
    return [(streams.bids, "auction")]


def q3(streams: Streams) -> DataFrame:
    """A join of two streams whose rows are stored for good."""
    (items, _), (people, _) = q3_inputs(streams)
    return items.join(people, F.col("seller") == F.col("id")).select("name", "city", "state", "auction")


def q8(streams: Streams) -> DataFrame:
    """Persons and auctions of one window, each person once."""
    window = F.window("dateTime", "10 seconds").alias("window")
    (people, _), (items, _) = q8_inputs(streams)
    people = people.select("id", "name", window)
    opened = items.select(F.col("seller").alias("id"), window)
    met = people.join(opened, ["id", "window"]).groupBy("window", "id", "name").agg(F.count("*").alias("n"))
    return met.select("id", "name", F.col("window.start").alias("startTime"))


def q20(streams: Streams) -> DataFrame:
    """Bids and auctions by key, all rows stored for good."""
    (bids, _), (items, _) = q20_inputs(streams)
    return bids.join(items, F.col("auction") == F.col("id"))


def dedup(streams: Streams) -> DataFrame:
    """The first bid of each bidder for each auction within the watermark's delay."""
    return streams.bids.dropDuplicatesWithinWatermark(["bidder", "auction"])


def dedup_headrace(streams: Streams) -> DataFrame:
    return hr.stream(streams.bids).name("dedup").dropDuplicatesWithinWatermark("bidder", "auction")


# The rows that the first stateful operator of a query gets: per side, with the column of its key.
INPUTS: dict[str, Callable[[Streams], list[Input]]] = {
    "q3": q3_inputs,
    "q8": q8_inputs,
    "q20": q20_inputs,
    "dedup": dedup_inputs,
}
SPARK: dict[str, Callable[[Streams], DataFrame]] = {"q3": q3, "q8": q8, "q20": q20, "dedup": dedup}
