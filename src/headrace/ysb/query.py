"""The benchmark's query: views of ads, their campaigns from Redis, counts per window back to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace.clock import SYSTEM_CLOCK
from headrace.outside.address import parsed
from headrace.outside.client import RedisClient
from headrace.outside.policy import waiting
from headrace.ysb.tables import send, storing

EVENT = "ad_id string, event_type string, event_time string"
CACHE = 100_000  # ads that a worker remembers
LATE = "61 seconds"  # the generator's latest events


def counts(spark: Any, folder: Path, url: str, cache: int = CACHE) -> Any:
    """Views per campaign and window of ten seconds, as a streaming DataFrame."""
    from pyspark.sql.functions import from_json

    import headrace as hr

    source = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(folder))
    views = (
        source.select(from_json("value", EVENT).alias("e"))
        .where("e.event_type = 'view'")
        .selectExpr("e.ad_id", "timestamp_millis(CAST(e.event_time AS long)) AS event_time")
    )
    marked = hr.stream(views).withWatermark("event_time", LATE)
    enriched = marked.enrich("ad_id", hr.redis(url, "campaign_id string", cache=cache, cacheFor=None))
    grouped = hr.stream(enriched).groupBy("campaign_id", hr.tumbling("10 seconds"))
    return grouped.agg(seen_count=hr.count(), emit="changes").selectExpr(
        "campaign_id", "unix_millis(window.start) AS start_ms", "seen_count"
    )


def start(spark: Any, folder: Path, url: str, checkpoint: Path, cache: int = CACHE) -> Any:
    """Starts the query over all files of a folder."""
    writer = writing(url)

    def write(batch: Any, number: int) -> None:
        batch.foreachPartition(writer)

    return (
        counts(spark, folder, url, cache)
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def writing(url: str) -> Callable[[Iterator[Any]], None]:
    """Writes the counts of one partition; it waits for a server that is down."""

    def write(rows: Iterator[Any]) -> None:
        from headrace.ysb.query import written

        changed = [tuple(row) for row in rows]
        if changed:
            asyncio.run(written(url, changed))

    return write


async def written(url: str, changed: list[tuple[str, int, int]]) -> None:
    """Stores changed counts; a repetition after a lost connection does no harm."""
    now_ms = SYSTEM_CLOCK.now_ms()
    commands = [command for row in changed for command in storing(*row, now_ms)]
    client = RedisClient(parsed(url))
    try:
        await waiting(lambda: send(client, commands), SYSTEM_CLOCK)
    finally:
        await client.close()
