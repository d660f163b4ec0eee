"""The benchmark's tables in Redis, as its own reader expects them.

    campaigns                 set of campaign ids
    <ad id>                   campaign id
    <campaign id>             hash: window start in ms → window id; "windows" → list id
    <list id>                 list of window starts
    <window id>               hash: seen_count, time_updated

Counts are absolute and identifiers follow from campaign and window, so a batch that is written twice leaves
the same tables.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from headrace.generators.ysb import Ads
from headrace.outside.address import parsed
from headrace.outside.client import RedisClient
from headrace.outside.resp import Part

Command = tuple[Part, ...]
Counts = dict[tuple[str, int], int]  # by campaign and window start in ms

_BATCH = 500


def window_id(campaign: str, start_ms: int) -> str:
    return str(uuid.uuid5(uuid.UUID(campaign), str(start_ms)))


def list_id(campaign: str) -> str:
    return str(uuid.uuid5(uuid.UUID(campaign), "windows"))


def loading(ads: Ads) -> list[Command]:
    """The commands that store ads and campaigns."""
    campaigns = sorted(set(ads.campaigns))
    pairs = zip(ads.ads, ads.campaigns, strict=True)
    return [("SADD", "campaigns", *campaigns), *(("SET", ad, campaign) for ad, campaign in pairs)]


def storing(campaign: str, start_ms: int, count: int, now_ms: int) -> list[Command]:
    """The commands that store one count; they have the same effect once or twice."""
    window, windows = window_id(campaign, start_ms), list_id(campaign)
    return [
        ("MULTI",),
        ("HSET", campaign, start_ms, window, "windows", windows),
        ("LREM", windows, 0, start_ms),
        ("LPUSH", windows, start_ms),
        ("HSET", window, "seen_count", count, "time_updated", now_ms),
        ("EXEC",),
    ]


async def send(client: RedisClient, commands: Iterable[Command]) -> None:
    """Sends commands in batches; a transaction is never cut."""
    batch: list[Command] = []
    for command in commands:
        batch.append(command)
        if len(batch) >= _BATCH and command[0] not in ("MULTI", "HSET", "LREM", "LPUSH"):
            await client.pipeline(batch)
            batch = []
    await client.pipeline(batch)


async def stored(url: str) -> Counts:
    """All counts, read the way the benchmark's own reader does."""
    client, counts = RedisClient(parsed(url)), Counts()
    try:
        for member in await client.execute("SMEMBERS", "campaigns"):
            campaign = member.decode()
            windows = await client.execute("HGET", campaign, "windows")
            if windows is None:
                continue
            starts = [int(start) for start in await client.execute("LRANGE", windows, 0, -1)]
            ids = await client.execute("HMGET", campaign, *starts)
            seen = await client.pipeline([("HGET", window, "seen_count") for window in ids])
            counts.update(
                {(campaign, start): int(count) for start, count in zip(starts, seen, strict=True)}
            )
    finally:
        await client.close()
    return counts
