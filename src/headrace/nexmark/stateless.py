"""Queries without state: projections and filters of bids. They are plain Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOT_CHANNELS = ("apple", "google", "facebook", "baidu")  # channel ids 0 to 3


def q0(bids: DataFrame) -> DataFrame:
    """Every bid as it is."""
    return bids.select("auction", "bidder", "price", "dateTime", "extra")


def q1(bids: DataFrame) -> DataFrame:
    """Prices in euros."""
    euros = F.expr("CAST(0.908 * price AS DECIMAL(23, 3))").alias("price")
    return bids.select("auction", "bidder", euros, "dateTime", "extra")


def q2(bids: DataFrame, ids: Sequence[int] | None = None) -> DataFrame:
    """Bids for some auctions: every 123rd, or those that are listed."""
    chosen = F.col("auction") % 123 == 0 if ids is None else F.col("auction").isin(*ids)
    return bids.where(chosen).select("auction", "price")


def q14(bids: DataFrame) -> DataFrame:
    """Bids of some prices, the time of day, and how often `extra` has the letter c."""
    hour = F.hour("dateTime")
    time_type = (
        F.when((hour >= 8) & (hour <= 18), "dayTime")
        .when((hour <= 6) | (hour >= 20), "nightTime")
        .otherwise("otherTime")
    )
    letters = F.length("extra") - F.length(F.replace("extra", F.lit("c"), F.lit("")))
    euros = q1(bids).where("price > 1000000 AND price < 50000000")
    return euros.select(
        "auction",
        "bidder",
        "price",
        time_type.alias("bidTimeType"),
        "dateTime",
        "extra",
        letters.alias("c_counts"),
    )


def q21(bids: DataFrame) -> DataFrame:
    """The channel's id: a number for the four hot channels, else the one in the URL."""
    in_url = F.nullif(F.regexp_extract("url", r"(&|^)channel_id=([^&]*)", 2), F.lit(""))
    channel_id = in_url
    for number, name in enumerate(HOT_CHANNELS):
        channel_id = F.when(F.lower("channel") == name, F.lit(str(number))).otherwise(channel_id)
    known = bids.select("auction", "bidder", "price", "channel", channel_id.alias("channel_id"))
    return known.where("channel_id IS NOT NULL")


def q22(bids: DataFrame) -> DataFrame:
    """The first three directories of the URL."""
    parts = F.split("url", "/")
    names = [F.get(parts, F.lit(at)).alias(f"dir{at - 2}") for at in (3, 4, 5)]
    return bids.select("auction", "bidder", "price", "channel", *names)
