"""A Redis server as a source of columns: string keys give one column, hashes one per field.

Threads: the thread of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.outside.address import Address
from headrace.outside.client import RedisClient
from headrace.outside.policy import Down
from headrace.outside.resp import Part

BATCH_KEYS = 1_000  # keys of one request

Values = tuple[bytes | None, ...]  # one value per column


@dataclass(frozen=True)
class RedisSource:
    """Which keys of which server give which columns."""

    address: Address
    columns: tuple[str, ...]
    prefix: str = ""
    is_hash: bool = False
    down: Down = "wait"
    cache_entries: int = 100_000
    cache_ms: float | None = 600_000.0


def commands_of(source: RedisSource, keys: Sequence[str]) -> list[tuple[Part, ...]]:
    """The requests for keys: one for many strings, one for each hash."""
    names = [source.prefix + key for key in keys]
    if source.is_hash:
        return [("HMGET", name, *source.columns) for name in names]
    return [("MGET", *names[at : at + BATCH_KEYS]) for at in range(0, len(names), BATCH_KEYS)]


async def fetch(client: RedisClient, source: RedisSource, keys: Sequence[str]) -> dict[str, Values]:
    """The values of keys that the server has; batches of requests are under way together."""
    parts = [keys[at : at + BATCH_KEYS] for at in range(0, len(keys), BATCH_KEYS)]
    answers = await asyncio.gather(*(client.pipeline(commands_of(source, part)) for part in parts))
    values: dict[str, Values] = {}
    for part, replies in zip(parts, answers, strict=True):
        rows = replies if source.is_hash else [(value,) for value in replies[0]]
        values.update(
            {
                key: tuple(row)
                for key, row in zip(part, rows, strict=True)
                if any(value is not None for value in row)
            }
        )
    return values
