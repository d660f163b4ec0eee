"""FlowKV's eight queries over NEXMark, as a user of Headrace writes them.

| query | state | windows |
|---|---|---|
| q5 | counts, then their maximum (RMW, RMW) | 10 s every 2 s |
| q5_append | counts, then the rows that have the maximum (RMW, AAR) | 10 s every 2 s |
| q7 | each bidder's bids until their window closes (AAR), then the highest of all (AAR) | 10 s |
| q7_session | bids of a bidder's session (AUR) | sessions, gap 10 s |
| q8 | a join of persons and auctions (AAR) | 10 s |
| q11 | counts (RMW) | sessions, gap 10 s |
| q11_median | prices of a bidder's session (AUR) | sessions, gap 10 s |
| q12 | counts (RMW) | none |

Streams have their watermark already (`bids.withWatermark("dateTime", "4 seconds")`). NEXMark's q12 counts
per window of processing time. Here, as in FlowKV, one window spans all time, so that the result can be
checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ID_BITS = 36  # NEXMark's ids stay far below 2**36, its prices below 2**27
_BID = "auction bigint, bidder bigint, price bigint, dateTime timestamp"


def q5(bids: DataFrame) -> DataFrame:
    """The auction with the most bids of the last 10 s, every 2 s; of several the largest id."""
    ranked = _bids_per_auction(bids).withColumn("rank", _rank("num", "auction"))
    best = (
        hr.stream(ranked)
        .name("most")
        .groupBy(hr.tumbling("2 seconds", on="window"))
        .agg(best=hr.max("rank"))
    )
    return best.select(
        "window.end", _unranked(F.col("best")).alias("auction"), F.shiftright("best", _ID_BITS).alias("num")
    )


def q5_append(bids: DataFrame) -> DataFrame:
    """All auctions with the most bids of the last 10 s, every 2 s, from all counts of a window."""
    return (
        hr.stream(_bids_per_auction(bids))
        .name("most")
        .groupBy(hr.tumbling("2 seconds", on="window"))
        .applyInArrow(_most, "end timestamp, auction bigint, num bigint")
    )


def q7(bids: DataFrame) -> DataFrame:
    """The highest bids of every 10 s: first of each bidder, then of all."""
    of_bidders = (
        hr.stream(bids)
        .name("bidders")
        .groupBy("bidder", hr.tumbling("10 seconds"))
        .agg(
            auction=hr.top("auction", 1, by="price", ties=True),
            price=hr.top("price", 1),
            dateTime=hr.top("dateTime", 1, by="price", ties=True),
        )
    )
    best = of_bidders.select(
        "bidder", F.col("price")[0].alias("price"), "window", F.explode(F.arrays_zip("auction", "dateTime"))
    ).select("col.auction", "bidder", "price", "col.dateTime", "window")
    return (
        hr.stream(best)
        .name("highest")
        .groupBy(hr.tumbling("10 seconds", on="window"))
        .applyInArrow(_highest, _BID)
    )


def q7_session(bids: DataFrame) -> DataFrame:
    """The highest bid of each bidder's session."""
    sessions = (
        hr.stream(bids)
        .name("sessions")
        .groupBy("bidder", hr.session("10 seconds"))
        .agg(highest=hr.top("price", 1))
    )
    return sessions.select("bidder", "window.start", "window.end", F.col("highest")[0].alias("highest"))


def q8(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    """People who registered and opened auctions in the same 10 s, and how many."""
    left = persons.select("id", "name", "dateTime")
    right = auctions.select("seller", F.col("dateTime").alias("openedAt"))
    joined = (
        hr.stream(left)
        .name("join")
        .join(hr.stream(right), on=[("id", "seller")], window=hr.tumbling("10 seconds"))
    )
    opened = (
        hr.stream(joined.select("id", "name", "window"))
        .name("opened")
        .groupBy("id", "name", hr.tumbling("10 seconds", on="window"))
        .agg(auctions=hr.count())
    )
    return opened.select("id", "name", "window.start", "auctions")


def q11(bids: DataFrame) -> DataFrame:
    """The number of bids of each bidder's session."""
    sessions = (
        hr.stream(bids).name("sessions").groupBy("bidder", hr.session("10 seconds")).agg(num=hr.count())
    )
    return sessions.select("bidder", "window.start", "window.end", "num")


def q11_median(bids: DataFrame) -> DataFrame:
    """The median price of each bidder's session."""
    sessions = (
        hr.stream(bids)
        .name("sessions")
        .groupBy("bidder", hr.session("10 seconds"))
        .agg(median=hr.median("price"))
    )
    return sessions.select("bidder", "window.start", "window.end", "median")


def q12(bids: DataFrame) -> DataFrame:
    """The number of bids of each bidder so far."""
    return hr.stream(bids).name("bidders").groupBy("bidder").agg(num=hr.count())


def counts_per_window(bids: DataFrame) -> DataFrame:
    """The counts of q5 without slices: a bid counts in each of its windows."""
    windows = bids.select("auction", F.window("dateTime", "10 seconds", "2 seconds").alias("window"))
    by_window = hr.stream(windows).name("counts").groupBy("auction", hr.tumbling("2 seconds", on="window"))
    return by_window.agg(num=hr.count())


OVER_BIDS: dict[str, Callable[..., DataFrame]] = {
    "q5": q5,
    "q5_append": q5_append,
    "q7": q7,
    "q7_session": q7_session,
    "q11": q11,
    "q11_median": q11_median,
    "q12": q12,
}
NAMES = ("q5", "q5_append", "q7", "q7_session", "q8", "q11", "q11_median", "q12")


def _bids_per_auction(bids: DataFrame) -> DataFrame:
    return (
        hr.stream(bids)
        .name("counts")
        .groupBy("auction", hr.sliding("10 seconds", "2 seconds"))
        .agg(num=hr.count())
    )


def _rank(num: str, of: str) -> Column:
    """One number that orders by `num`, then by id, so that its maximum contains both."""
    return F.shiftleft(F.col(num), _ID_BITS).bitwiseOR(F.col(of))


def _unranked(rank: Column) -> Column:
    return rank.bitwiseAND(F.lit((1 << _ID_BITS) - 1))


def _most(key: tuple[tuple[pa.Scalar, pa.Scalar]], counts: pa.Table) -> pa.Table:
    top = counts.filter(pc.equal(counts["num"], pc.max(counts["num"])))
    ((_, end),) = key
    return pa.table({"end": pa.repeat(end, len(top)), "auction": top["auction"], "num": top["num"]})


def _highest(bids: pa.Table) -> pa.Table:
    top = bids.filter(pc.equal(bids["price"], pc.max(bids["price"])))
    return top.select(["auction", "bidder", "price", "dateTime"])
