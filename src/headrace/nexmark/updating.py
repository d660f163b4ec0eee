"""Queries whose result changes while bids arrive.

`emit="changes"` gives the rows of the result that a batch changed, `emit="changelog"` what it did to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import headrace as hr
from headrace.nexmark.joins import valid_bids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.plan.spec import Emit
    from headrace.spark.language.aggregates import Aggregate

FRAME = 10  # q6: preceding rows
WINNERS_MAX = 100_000  # q6: winning bids of one seller
RANKS = {"1": "price < 10000", "2": "price >= 10000 AND price < 1000000", "3": "price >= 1000000"}


def q4(auctions: DataFrame, bids: DataFrame, emit: Emit = "changes") -> DataFrame:
    """The average of the highest bids of all auctions, per category."""
    valid = hr.stream(_valid_prices(auctions, bids)).name("highest")
    by_auction = valid.groupBy("auction", "category", hr.tumbling("10 seconds", on="expires"))
    highest = by_auction.agg(final=hr.max("price"), emit="changelog")
    averages = hr.stream(highest).name("averages").groupBy("category")
    return averages.agg(average=hr.avg("final"), emit=emit)


def q6(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """For every winning bid of a seller, the average over it and the ten winning bids before it.

    A changelog: an auction that is still open may insert a winning bid anywhere.
    """
    ranked = (
        hr.stream(_winning(_valid_prices(auctions, bids), "changelog"))
        .name("ranked")
        .groupBy("seller")
        .top(
            WINNERS_MAX, by=[F.col("dateTime").asc(), F.col("auction").asc()], rank="row", emit="changelog"
        )
    )
    # A winning bid belongs to its own frame and to those of the ten rows behind it.
    frames = ranked.withColumn("frame", F.explode(F.sequence("row", F.col("row") + FRAME)))
    averages = (
        hr.stream(frames)
        .name("averages")
        .groupBy("seller", "frame")
        .agg(average=hr.avg("price"), own=hr.count(filter="row = frame"), emit="changelog")
    )
    return averages.where("own = 1").drop("own")


def q6_closed(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """The average over a seller's last ten closed auctions, as Beam words it."""
    valid = hr.stream(_valid_prices(auctions, bids)).name("closed")
    closed = valid.groupBy("auction", "seller", hr.tumbling("1 second", on="expires"))
    final = closed.agg(price=hr.max("price"), expires=hr.max("expires"))
    last = (
        hr.stream(final.drop("window"))
        .name("last")
        .groupBy("seller")
        .top(FRAME, by=["expires", "auction"], emit="changelog")
    )
    return hr.stream(last).name("averages").groupBy("seller").agg(average=hr.avg("price"))


def q9(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """The winning bid of each auction: the highest price, of several the earliest."""
    return _winning(valid_bids(auctions, bids), "changes")


def _winning(valid: DataFrame, emit: Emit) -> DataFrame:
    groups = hr.stream(valid).name("winning").groupBy("auction")
    return groups.top(1, by=["price", F.col("dateTime").asc()], emit=emit)


def _valid_prices(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Valid bids with the columns that averages need; a join stores every column that it gets."""
    items = auctions.select("id", "seller", "category", "dateTime", "expires")
    return valid_bids(items, bids.select("auction", "price", "dateTime"))


def q15(bids: DataFrame) -> DataFrame:
    """Bids, bidders and auctions per day: all, and by rank of price."""
    days = hr.stream(_dated(bids)).name("days").groupBy("day", hr.tumbling("1 day"))
    aggregates = {**_counts(), **_distinct("bidder"), **_distinct("auction")}
    return days.agg(emit="changes", **aggregates).drop("window")


def q16(bids: DataFrame) -> DataFrame:
    """The same per channel, and the last minute with a bid."""
    dated = _dated(bids).withColumn("at", F.date_format("dateTime", "HH:mm"))
    days = hr.stream(dated).name("channels").groupBy("channel", "day", hr.tumbling("1 day"))
    aggregates = {**_counts(), **_distinct("bidder"), **_distinct("auction")}
    return days.agg(emit="changes", minute=hr.max("at"), **aggregates).drop("window")


def q17(bids: DataFrame) -> DataFrame:
    """Bids and prices of each auction per day."""
    days = hr.stream(_dated(bids)).name("auctions").groupBy("auction", "day", hr.tumbling("1 day"))
    prices = {
        "min_price": hr.min("price"),
        "max_price": hr.max("price"),
        "avg_price": hr.avg("price"),
        "sum_price": hr.sum("price"),
    }
    return days.agg(emit="changes", **_counts(), **prices).drop("window")


def q18(bids: DataFrame) -> DataFrame:
    """The latest bid of each bidder for each auction; of several the highest."""
    return hr.stream(bids).name("latest").groupBy("bidder", "auction").top(1, by=["dateTime", "price"])


def q19(bids: DataFrame) -> DataFrame:
    """The ten highest bids of each auction."""
    return hr.stream(bids).name("highest").groupBy("auction").top(10, by="price", rank="rank_number")


def _dated(bids: DataFrame) -> DataFrame:
    return bids.withColumn("day", F.date_format("dateTime", "yyyy-MM-dd"))


def _counts() -> dict[str, Aggregate]:
    ranked = {f"rank{rank}_bids": hr.count(filter=only) for rank, only in RANKS.items()}
    return {"total_bids": hr.count(), **ranked}


def _distinct(column: str) -> dict[str, Aggregate]:
    ranked = {
        f"rank{rank}_{column}s": hr.count_distinct(column, filter=only) for rank, only in RANKS.items()
    }
    return {f"total_{column}s": hr.count_distinct(column), **ranked}
