"""Look-ups in a store outside: the cache first, then one batch of requests for all keys that it lacks.

Threads: the thread of the event loop.
"""

from __future__ import annotations

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
        self.fetched_keys = 0  # keys that were requested from the store

    async def values(self, client: RedisClient, keys: Collection[str]) -> dict[str, Values]:
        """The values of distinct keys; a key that the store lacks is missing."""
        known = self._cache.known(keys)
        missing = [key for key in keys if key not in known]
        if missing:
            fetched = await self._fetch(client, missing)
            self._cache.add(fetched)
            known.update(fetched)
        return known

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
