"""CM1 and CM2 of MiSA's Table 2, as a user of Headrace writes them.

| query | in the paper | state |
|---|---|---|
| CM1 | `sum(cpu)` by category `[range 60 slide 10]`, ordered by the sum | sums, then a window's rows |
| CM2 | `avg(cpu)` by job where `eventType == 1` `[range 30 slide 1]` | sums and counts |

Streams have their watermark already (`events.withWatermark("timestamp", "3 seconds")`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

import headrace as hr
from headrace.generators.cluster import SCHEDULE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOTALS = "end timestamp, category int, totalCpu double"


def cm1(events: DataFrame) -> DataFrame:
    """The cpu requested by each category in the last 60 s, every 10 s, the smallest first."""
    totals = (
        hr.stream(events)
        .name("totals")
        .groupBy("category", hr.sliding("60 seconds", "10 seconds"))
        .agg(totalCpu=hr.sum("cpu"))
    )
    return (
        hr.stream(totals.select("window", F.col("window.end").alias("end"), "category", "totalCpu"))
        .name("ordered")
        .groupBy(hr.tumbling("10 seconds", on="window"))
        .applyInArrow(_ordered, _TOTALS)
    )


def cm2(events: DataFrame) -> DataFrame:
    """The average cpu of the tasks that each job scheduled in the last 30 s, every second."""
    return (
        hr.stream(events.where(F.col("eventType") == SCHEDULE))
        .name("jobs")
        .groupBy("jobId", hr.sliding("30 seconds", "1 second"))
        .agg(avgCpu=hr.avg("cpu"))
    )


def parsed(text: DataFrame) -> DataFrame:
    """The columns of events in text form: the first step of a query over Kafka."""
    whole = ["jobId bigint", "taskId bigint", "machineId bigint", "eventType int", "userId int"]
    rest = ["category int", "priority int", "cpu float", "ram float", "disk float", "constraints int"]
    fields = F.split("value", ",")
    named = [column.split() for column in (*whole, *rest)]
    return text.select(
        F.timestamp_seconds(fields[0].cast("bigint")).alias("timestamp"),
        *(fields[at].cast(kind).alias(name) for at, (name, kind) in enumerate(named, 1)),
    )


def _ordered(totals: pa.Table) -> pa.Table:
    return totals.select(["end", "category", "totalCpu"]).sort_by("totalCpu")
