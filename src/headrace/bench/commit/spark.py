"""MiSA's queries in Spark's own operators, with the same rows as in Headrace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F

from headrace.generators.cluster import SCHEDULE

_REPORT = ["speed", "highway", "lane", "direction", "segment"]


def lr2(reports: Any) -> Any:
    """Spark joins windows as columns: each side has one row per window that contains it."""
    window = F.window("timestamp", "30 seconds", "1 second")
    seen = F.timestamp_micros(F.unix_micros("timestamp"))  # Spark allows one event time, the window's
    left = reports.select("vehicle", window.alias("window"), seen.alias("seen"), *_REPORT)
    right = reports.select("vehicle", window.alias("window"))
    return left.join(right, ["window", "vehicle"])


def lr4(reports: Any) -> Any:
    window = F.window("timestamp", "20 seconds", "5 seconds")
    grouped = reports.groupBy("highway", "direction", "segment", window)
    return grouped.agg(F.count("vehicle").alias("numVehicle"))


def cm1(events: Any) -> Any:
    """Each window's rows, sorted. `orderBy` needs complete mode, which keeps every window."""
    totals = events.groupBy("category", F.window("timestamp", "60 seconds", "10 seconds")).agg(
        F.sum("cpu").alias("totalCpu")
    )
    row = F.struct("totalCpu", "category")
    ordered = totals.groupBy("window").agg(F.sort_array(F.collect_list(row)).alias("rows"))
    return ordered.select(F.col("window.end").alias("end"), F.explode("rows").alias("row")).select(
        "end", "row.category", "row.totalCpu"
    )


def cm2(events: Any) -> Any:
    scheduled = events.where(F.col("eventType") == SCHEDULE)
    grouped = scheduled.groupBy("jobId", F.window("timestamp", "30 seconds", "1 second"))
    return grouped.agg(F.avg("cpu").alias("avgCpu"))


QUERIES: dict[str, Callable[[Any], Any]] = {"lr2": lr2, "lr4": lr4, "cm1": cm1, "cm2": cm2}
