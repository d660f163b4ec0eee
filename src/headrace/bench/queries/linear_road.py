"""LR2 and LR4 of MiSA's Table 2, as a user of Headrace writes them.

| query | in the paper | state |
|---|---|---|
| LR2 | `SegSpeedStr [range 30 slide 1] A, SegSpeedStr L` where `A.vehicle == L.vehicle` | rows of a join |
| LR4 | `count(vehicle)` by highway, direction, segment `[range 20 slide 5]` | counts |

Streams have their watermark already (`reports.withWatermark("timestamp", "3 seconds")`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REPORT = ["timestamp", "vehicle", "speed", "highway", "lane", "direction", "segment"]


def lr2(reports: DataFrame) -> DataFrame:
    """Every report, once for each report of the same vehicle in each window of 30 s that contains both."""
    active = reports.select("vehicle", F.col("timestamp").alias("seen"))
    joined = (
        hr.stream(reports.select(*_REPORT))
        .name("active")
        .join(hr.stream(active), on="vehicle", window=hr.sliding("30 seconds", "1 second"))
    )
    return joined.select("window", *_REPORT)


def lr4(reports: DataFrame) -> DataFrame:
    """The number of reports of each segment in the last 20 s, every 5 s."""
    return (
        hr.stream(reports)
        .name("segments")
        .groupBy("highway", "direction", "segment", hr.sliding("20 seconds", "5 seconds"))
        .agg(numVehicle=hr.count("vehicle"))
    )


def parsed(text: DataFrame) -> DataFrame:
    """The columns of reports in text form: the first step of a query over Kafka."""
    types = ["timestamp", "int", "float", "int", "int", "int", "int", "int"]
    names = ["timestamp", "vehicle", "speed", "highway", "lane", "direction", "position", "segment"]
    fields = F.split("value", ",")
    return text.select(
        *(
            fields[at].cast(kind).alias(name)
            for at, (name, kind) in enumerate(zip(names, types, strict=True))
        )
    )
