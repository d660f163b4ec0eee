"""Protects look-ups against a real Redis server: batches, hashes, absent keys, the cache, and each policy
while the server is down. Skipped where no `redis-server` is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.outside.address import parsed
from headrace.outside.client import RedisClient
from headrace.outside.errors import StoreDown, StoreRefused
from headrace.outside.lookup import Lookup
from headrace.outside.redis import RedisSource
from headrace.spark.enrich.task import KEY, Enrichment, EnrichPlan
from headrace.testing.faults.redis_server import RedisServer, is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="redis-server is not installed")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


def with_client(server: RedisServer, call: Callable[[RedisClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = RedisClient(parsed(server.url))
        try:
            return await call(client)
        finally:
            await client.close()

    return asyncio.run(run())


def fill(server: RedisServer, *commands: tuple[Any, ...]) -> None:
    with_client(server, lambda client: client.pipeline(commands))


def test_commands_of_many_callers_get_their_own_replies(server: RedisServer) -> None:
    async def call(client: RedisClient) -> list[Any]:
        await client.pipeline([("SET", f"k{n}", "v" * n) for n in range(200)])
        return await asyncio.gather(*(client.execute("GET", f"k{n}") for n in range(201)))

    assert with_client(server, call) == [*(b"v" * n for n in range(200)), None]


def test_a_look_up_asks_once_for_each_key_and_remembers_values(server: RedisServer) -> None:
    count = 2_500  # more than one request
    fill(server, ("MSET", *(part for n in range(count) for part in (f"ad:{n}", f"c{n % 10}"))))
    lookup = Lookup(RedisSource(parsed(server.url), ("c",), prefix="ad:"))
    keys = [str(n) for n in range(count)]

    async def call(client: RedisClient) -> None:
        expected = {key: (f"c{int(key) % 10}".encode(),) for key in keys}
        assert await lookup.values(client, [*keys, "absent"]) == expected
        assert lookup.fetched_keys == count + 1
        assert await lookup.values(client, [*keys, "absent"]) == expected
        assert lookup.fetched_keys == count + 2  # the absent key may exist by now

    with_client(server, call)


def test_an_error_that_a_repetition_does_not_change_is_raised(server: RedisServer) -> None:
    fill(server, ("RPUSH", "list", "x"))
    lookup = Lookup(RedisSource(parsed(server.url), ("f",), is_hash=True))
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        with_client(server, lambda client: lookup.values(client, ["list"]))


def test_waiting_goes_on_when_the_server_is_back(server: RedisServer) -> None:
    fill(server, ("SET", "a", "1"))
    lookup = Lookup(RedisSource(parsed(server.url), ("v",)))

    async def call(client: RedisClient) -> Any:
        await client.execute("PING")
        server.kill()
        waiting = asyncio.create_task(lookup.values(client, ["a"]))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await asyncio.to_thread(server.start)
        return await waiting

    assert with_client(server, call) == {"a": (b"1",)}


def test_nulls_and_failures_while_the_server_is_down(server: RedisServer) -> None:
    fill(server, ("SET", "a", "1"), ("SET", "b", "2"))
    nulls = Lookup(RedisSource(parsed(server.url), ("v",), down="null"))
    failing = Lookup(RedisSource(parsed(server.url), ("v",), down="fail"))

    async def call(client: RedisClient) -> None:
        assert await nulls.values(client, ["a"]) == {"a": (b"1",)}
        server.kill()
        assert await nulls.values(client, ["a", "b"]) == {"a": (b"1",)}  # what is remembered stays
        with pytest.raises(StoreDown, match="start the server"):
            await failing.values(client, ["b"])

    with_client(server, call)


def test_a_batch_gets_columns_of_its_keys(server: RedisServer) -> None:
    fill(server, ("HSET", "a", "n", "7", "t", "x"), ("HSET", "b", "t", "y"))
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    plan = EnrichPlan(RedisSource(parsed(server.url), ("n", "t"), is_hash=True), schema)
    keys = ["b", None, "a", "absent", "a"]
    batch = pa.RecordBatch.from_pydict({KEY: pa.array(keys), "row": list(range(5))})
    empty = batch.slice(0, 0)
    batches = list(Enrichment(plan, Lookup(plan.source)).run(iter([batch, empty])))
    assert batches[0].to_pydict() == {
        "row": [0, 1, 2, 3, 4],
        "n": [None, None, 7, None, 7],
        "t": ["y", None, "x", None, "x"],
    }
    assert batches[1].num_rows == 0
    assert batches[1].schema == batches[0].schema


def test_a_value_that_does_not_fit_its_column_is_named(server: RedisServer) -> None:
    fill(server, ("SET", "a", "seven"))
    plan = EnrichPlan(RedisSource(parsed(server.url), ("n",)), pa.schema([("n", pa.int64())]))
    batch = pa.RecordBatch.from_pydict({KEY: ["a"]})
    with pytest.raises(Exception, match="column n in Redis"):
        list(Enrichment(plan, Lookup(plan.source)).run(iter([batch])))
