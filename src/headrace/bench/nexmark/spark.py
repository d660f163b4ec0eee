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


def q3(streams: Streams) -> DataFrame:
    """A join of two streams whose rows are stored for good."""
    items = streams.auctions.where("category = 10").select("seller", F.col("id").alias("auction"))
    people = streams.persons.where(F.col("state").isin(*STATES)).select("id", "name", "city", "state")
    return items.join(people, F.col("seller") == F.col("id")).select("name", "city", "state", "auction")


def q8(streams: Streams) -> DataFrame:
    """Persons and auctions of one window, each person once."""
    window = F.window("dateTime", "10 seconds").alias("window")
    people = streams.persons.select("id", "name", window)
    opened = streams.auctions.select(F.col("seller").alias("id"), window)
    met = people.join(opened, ["id", "window"]).groupBy("window", "id", "name").agg(F.count("*").alias("n"))
    return met.select("id", "name", F.col("window.start").alias("startTime"))


def q20(streams: Streams) -> DataFrame:
    """Bids and auctions by key, all rows stored for good."""
    items = streams.auctions.where("category = 10").withColumnsRenamed(
        {"dateTime": "auction_dateTime", "extra": "auction_extra"}
    )
    return streams.bids.join(items, F.col("auction") == F.col("id"))


def dedup(streams: Streams) -> DataFrame:
    """The first bid of each bidder for each auction within the watermark's delay."""
    return streams.bids.dropDuplicatesWithinWatermark(["bidder", "auction"])


def dedup_headrace(streams: Streams) -> DataFrame:
    return hr.stream(streams.bids).name("dedup").dropDuplicatesWithinWatermark("bidder", "auction")


SPARK: dict[str, Callable[[Streams], DataFrame]] = {"q3": q3, "q8": q8, "q20": q20, "dedup": dedup}
