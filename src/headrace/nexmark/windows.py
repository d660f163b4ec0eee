"""Queries over windows and sessions, each emitted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.plan.spec import Emit


def q5(bids: DataFrame) -> DataFrame:
    """All auctions with the most bids of the last 10 s, every 2 s."""
    sliding = hr.stream(bids).name("counts").groupBy("auction", hr.sliding("10 seconds", "2 seconds"))
    counts = sliding.agg(num=hr.count())
    of_window = hr.stream(counts).name("most").groupBy(hr.tumbling("2 seconds", on="window"))
    most = of_window.agg(auctions=hr.top("auction", 1, by="num", ties=True), num=hr.max("num"))
    return most.select(F.explode("auctions").alias("auction"), "num")


def q7(bids: DataFrame) -> DataFrame:
    """The highest bids of every 10 s. As NEXMark words it, a bid at the end of the window counts too."""
    windows = hr.stream(bids).name("highest").groupBy(hr.tumbling("10 seconds"))
    highest = windows.agg(highest=hr.max("price")).select("highest", F.col("window.end").alias("endTime"))
    best = (
        hr.stream(bids)
        .name("bids")
        .join(
            hr.stream(highest),
            on=[("price", "highest")],
            between=("-10 seconds", "0 seconds"),
            times=("dateTime", "endTime"),
        )
    )
    return best.select("auction", "price", "bidder", "dateTime", "extra")


def q11(bids: DataFrame) -> DataFrame:
    """How many bids each bidder makes without a pause of 10 s."""
    sessions = hr.stream(bids).name("sessions").groupBy("bidder", hr.session("10 seconds"))
    counts = sessions.agg(bid_count=hr.count())
    bounds = [F.col("window.start").alias("starttime"), F.col("window.end").alias("endtime")]
    return counts.select("bidder", "bid_count", *bounds)


def q12(plain_bids: DataFrame, emit: Emit = "changes") -> DataFrame:
    """How many bids each bidder makes in every 10 s of processing time.

    Spark logs the time of a batch, so a replay has the same one.
    """
    clocked = plain_bids.select("bidder", F.current_timestamp().alias("at"))
    return _counted(clocked.withWatermark("at", "0 seconds"), emit)


def q12_event_time(bids: DataFrame) -> DataFrame:
    """The same in event time."""
    return _counted(bids, "final")


def _counted(bids: DataFrame, emit: Emit) -> DataFrame:
    windows = hr.stream(bids).name("bidders").groupBy("bidder", hr.tumbling("10 seconds"))
    counts = windows.agg(bid_count=hr.count(), emit=emit)
    bounds = [F.col("window.start").alias("starttime"), F.col("window.end").alias("endtime")]
    return counts.select("bidder", "bid_count", *bounds)
