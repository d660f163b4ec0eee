"""Look-ups in a store outside: the cache first, then one batch of requests for all keys that it lacks.

Several look-ups may be under way. A key that one of them has requested is not requested again.
Threads: the thread of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.outside.cache import Cache
from headrace.outside.client import RedisClient
from headrace.outside.errors import StoreDown
from headrace.outside.policy import Breaker, waiting
from headrace.outside.redis import RedisSource, Values, fetch


class Lookup:
    """Values by key; the cache outlives the connection."""

    def __init__(self, source: RedisSource, clock: Clock = SYSTEM_CLOCK) -> None:
        self.source, self._clock = source, clock
        self._cache = Cache[Values](source.cache_entries, source.cache_ms, clock)
        self._breaker = Breaker(clock)
        self._coming: dict[str, asyncio.Task[dict[str, Values]]] = {}  # the fetch of each requested key
        self.fetched_keys = 0  # keys that were requested from the store

    async def values(self, client: RedisClient, keys: Collection[str]) -> dict[str, Values]:
        """The values of distinct keys; a key that the store lacks is missing."""
        known = self._cache.known(keys)
        missing = [key for key in keys if key not in known]
        fetches = {self._coming[key] for key in missing if key in self._coming}
        rest = [key for key in missing if key not in self._coming]
        if rest:
            own = asyncio.create_task(self._fetch(client, rest))
            self._coming.update(dict.fromkeys(rest, own))
            own.add_done_callback(lambda _: self._came(rest))
            fetches.add(own)
        wanted = set(missing)
        for fetched in await asyncio.gather(*fetches):
            self._cache.add({key: value for key, value in fetched.items() if key in wanted})
            known.update({key: value for key, value in fetched.items() if key in wanted})
        return known

    def _came(self, keys: list[str]) -> None:
        for key in keys:
            self._coming.pop(key, None)

    async def _fetch(self, client: RedisClient, keys: list[str]) -> dict[str, Values]:
        source = self.source
        self.fetched_keys += len(keys)
        if source.down == "wait":
            return await waiting(lambda: fetch(client, source, keys), self._clock)
        if source.down == "null" and self._breaker.is_open:
            return {}
        try:
            return await fetch(client, source, keys)
        except StoreDown:
            if source.down == "fail":
                raise
            self._breaker.trip()
            return {}
