"""Queries that join streams: by key alone, while an auction is open, in a window, with a static table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATES = ("OR", "ID", "CA")


def q3(auctions: DataFrame, persons: DataFrame, states: Sequence[str] = STATES) -> DataFrame:
    """People of three states who sell in category 10."""
    items = auctions.where("category = 10").select("seller", F.col("id").alias("auction"))
    sellers = persons.where(F.col("state").isin(*states)).select("id", "name", "city", "state")
    sold = hr.stream(items).name("sellers").join(hr.stream(sellers), on=[("seller", "id")])
    return sold.select("name", "city", "state", F.col("auction").alias("id"))


def q8(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    """People who registered and opened an auction in the same 10 s."""
    opened = auctions.select("seller", F.col("dateTime").alias("openedAt"))
    people = hr.stream(persons.select("id", "name", "dateTime")).name("join")
    met = people.join(hr.stream(opened), on=[("id", "seller")], window=hr.tumbling("10 seconds"))
    sellers = hr.stream(met).name("sellers").groupBy("id", "name", hr.tumbling("10 seconds", on="window"))
    return sellers.agg(auctions=hr.count()).select("id", "name", F.col("window.start").alias("startTime"))


def q13(bids: DataFrame, side_table: DataFrame, side_path: str) -> DataFrame:
    """Bids with the value of a static table, whose generations are in a folder."""
    keyed = bids.withColumn("key", F.col("auction") % 10000)
    matches = hr.stream(keyed).name("side").lookup(side_table, on="key", path=side_path)
    return matches.select("auction", "bidder", "price", "dateTime", "value")


def q20(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Bids for auctions of category 10, with all columns of both."""
    items = _marked(auctions.where("category = 10"), "auction_")
    return hr.stream(bids).name("items").join(hr.stream(items), on=[("auction", "id")])


def q23(auctions: DataFrame, bids: DataFrame, persons: DataFrame) -> DataFrame:
    """Bids of people who sell too: with the person, and each auction of that person."""
    people = hr.stream(_marked(persons, "person_")).name("bidders")
    bidders = people.join(hr.stream(_marked(bids, "bid_")), on=[("id", "bidder")])
    items = hr.stream(_marked(auctions, "auction_", kept=("seller",)))
    sold = hr.stream(bidders).name("sellers").join(items, on=[("id", "seller")])
    return sold.withColumnRenamed("id", "bidder")


def valid_bids(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """Bids while their auction is open; columns of the auction that a bid has too begin with `auction_`."""
    items = hr.stream(_marked(auctions, "auction_"))
    return hr.stream(bids).name("valid").join(items, on=[("auction", "id")], until="expires")


def _marked(rows: DataFrame, prefix: str, kept: tuple[str, ...] = ()) -> DataFrame:
    """The rows with a prefix on columns that other streams have as well."""
    shared = ("dateTime", "extra") if prefix != "auction_" or not kept else ("id", "dateTime", "extra")
    return rows.withColumnsRenamed({name: prefix + name for name in shared})
