"""FlowKV's queries in Spark's own operators; q7_session, q5_append and q11_median are not expressible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F


def q5(bids: Any) -> Any:
    """Counts over sliding windows, then the largest of each window."""
    counts = bids.groupBy(F.window("dateTime", "10 seconds", "2 seconds"), "auction").count()
    best = counts.groupBy("window").agg(F.max(F.struct("count", "auction")).alias("best"))
    return best.select("window.end", "best.auction", F.col("best.count").alias("num"))


def q7(bids: Any) -> Any:
    """NEXMark's own wording: the highest price of each window, joined with the bids at that price."""
    plain = F.timestamp_micros(F.unix_micros("dateTime"))  # Spark allows one event time, the window
    window = F.window("dateTime", "10 seconds").alias("window")
    windowed = bids.select("auction", "bidder", "price", window, plain.alias("dateTime"))
    highest = bids.groupBy(F.window("dateTime", "10 seconds")).agg(F.max("price").alias("price"))
    return windowed.join(highest, ["window", "price"]).select("auction", "bidder", "price", "dateTime")


def q8(persons: Any, auctions: Any) -> Any:
    """Persons and auctions of the same window, then the number of auctions per person."""
    left = persons.withColumn("window", F.window("dateTime", "10 seconds")).drop("dateTime")
    right = auctions.select(F.col("seller").alias("id"), F.window("dateTime", "10 seconds").alias("window"))
    joined = left.join(right, ["id", "window"])
    opened = joined.groupBy("window", "id", "name").agg(F.count("*").alias("auctions"))
    return opened.select("id", "name", "window.start", "auctions")


def q11(bids: Any) -> Any:
    sessions = bids.groupBy(F.session_window("dateTime", "10 seconds"), "bidder")
    return sessions.agg(F.count("*").alias("num"))


def q12(bids: Any) -> Any:
    return bids.groupBy("bidder").agg(F.count("*").alias("num"))


OVER_BIDS: dict[str, Callable[[Any], Any]] = {"q5": q5, "q7": q7, "q11": q11, "q12": q12}
NAMES = ("q5", "q7", "q8", "q11", "q12")
UPDATING = ("q12",)  # the others emit each window once
