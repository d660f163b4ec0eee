"""Protects enrichment in Spark: columns of a real Redis server beside the stream's own, and the watermark
of the stream. Refusals come when the query is built. Skipped where no `redis-server` is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor_case import write_batches
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.outside.address import parsed
from headrace.outside.client import RedisClient
from headrace.testing.faults.redis_server import RedisServer, is_installed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not is_installed(), reason="redis-server is not installed"),
]

CAMPAIGNS = {f"ad{n}": f"campaign{n % 3}" for n in range(30)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        asyncio.run(fill(server.url))
        yield server


async def fill(url: str) -> None:
    client = RedisClient(parsed(url))
    await client.pipeline([("SET", ad, campaign) for ad, campaign in CAMPAIGNS.items()])
    await client.close()


def clicks(spark: SparkSession, folder: Path) -> DataFrame:
    schema = "ad string, n long, ts timestamp"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "in"))


def rows_of(stream: DataFrame, checkpoint: Path) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []

    def collect(batch: DataFrame, _: int) -> None:
        rows.extend(tuple(row) for row in batch.collect())

    query = (
        stream.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows


def stamp(second: int) -> str:
    return f"2030-01-01T00:{second // 60:02}:{second % 60:02}Z"


def test_rows_get_their_columns_and_windows_close_by_the_watermark(
    spark: SparkSession, tmp_path: Path, server: RedisServer
) -> None:
    ads = [f"ad{n * 7 % 40}" for n in range(60)]  # ten of the ads are unknown
    rows = [{"ad": ad, "n": n, "ts": stamp(n)} for n, ad in enumerate(ads)]
    write_batches(tmp_path / "in", [rows[:40], rows[40:], [{"ad": "ad0", "n": 0, "ts": stamp(120)}]])
    store = hr.redis(server.url, "campaign string")
    marked = hr.stream(clicks(spark, tmp_path)).withWatermark("ts", "10 seconds")
    enriched = marked.enrich("ad", store)
    assert enriched.columns == ["ad", "n", "ts", "campaign"]
    counts = hr.stream(enriched).groupBy("campaign", hr.tumbling("30 seconds")).agg(n=hr.count())
    seen = rows_of(counts.select("campaign", "window.start", "n"), tmp_path / "ck")
    expected: dict[tuple[str | None, int], int] = {}
    for n, ad in enumerate(ads):
        window = (CAMPAIGNS.get(ad), n // 30 * 30)
        expected[window] = expected.get(window, 0) + 1
    assert {(campaign, start.minute * 60 + start.second): n for campaign, start, n in seen} == expected


def test_a_wrong_enrichment_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    stream = hr.stream(clicks(spark, tmp_path))
    with pytest.raises(hr.QueryError, match="column N already"):
        stream.enrich("ad", hr.redis("redis://h", "N long"))
    with pytest.raises(hr.QueryError, match="missing"):
        stream.enrich("missing", hr.redis("redis://h", "campaign string"))
    with pytest.raises(hr.QueryError, match="enrich takes a store, not str"):
        stream.enrich("ad", "redis://h")  # type: ignore[arg-type]
    with pytest.raises(hr.QueryError, match="cacheFor"):
        stream.enrich("ad", hr.redis("redis://h", "campaign string", cacheFor="soon"))
