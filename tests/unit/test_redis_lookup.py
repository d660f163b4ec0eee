"""Protects look-ups against a real Redis server: batches, hashes, absent keys, the cache, and each policy
while the server is down. Skipped where no `redis-server` is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_look_ups_of_the_next_batches_begin_while_one_waits(server: RedisServer, ahead: int) -> None:
    fill(server, *(("SET", f"k{n}", str(n)) for n in range(20)))
    random = np.random.default_rng(3)
    drawn = [[f"k{n}" for n in random.integers(0, 25, 30)] for _ in range(7)]
    plan = EnrichPlan(RedisSource(parsed(server.url), ("n",)), pa.schema([("n", pa.int64())]), ahead)
    lookup, reads = Lookup(plan.source), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal reads
        for keys in drawn:
            reads += 1
            yield pa.RecordBatch.from_pydict({KEY: keys, "key": keys})

    results = Enrichment(plan, lookup).run(batches())
    rows = [next(results)]
    assert reads == ahead + 1
    rows += results
    stored = {f"k{n}": n for n in range(20)}
    assert [row["key"].to_pylist() for row in rows] == drawn, "batches stay in their order"
    assert [row["n"].to_pylist() for row in rows] == [[stored.get(key) for key in keys] for keys in drawn]


def test_a_key_on_its_way_is_not_requested_again(server: RedisServer) -> None:
    fill(server, *(("SET", f"k{n}", "x") for n in range(40)))
    lookup = Lookup(RedisSource(parsed(server.url), ("v",)))

    async def call(client: RedisClient) -> list[Any]:
        parts = ([f"k{n}" for n in range(low, low + 20)] for low in (0, 10, 20))
        return await asyncio.gather(*(lookup.values(client, part) for part in parts))

    values = with_client(server, call)
    assert [sorted(one) for one in values] == [
        sorted(f"k{n}" for n in range(low, low + 20)) for low in (0, 10, 20)
    ]
    assert lookup.fetched_keys == 40


def test_an_error_of_a_look_up_ahead_ends_the_task(server: RedisServer) -> None:
    fill(server, ("SET", "a", "1"), ("RPUSH", "list", "x"))
    plan = EnrichPlan(RedisSource(parsed(server.url), ("n",), is_hash=True), pa.schema([("n", pa.int64())]))
    batches = [pa.RecordBatch.from_pydict({KEY: [key]}) for key in ("list", "b", "c")]
    with pytest.raises(StoreRefused, match="WRONGTYPE"):
        list(Enrichment(plan, Lookup(plan.source)).run(iter(batches)))


def test_a_value_that_does_not_fit_its_column_is_named(server: RedisServer) -> None:
    fill(server, ("SET", "a", "seven"))
    plan = EnrichPlan(RedisSource(parsed(server.url), ("n",)), pa.schema([("n", pa.int64())]))
    batch = pa.RecordBatch.from_pydict({KEY: ["a"]})
    with pytest.raises(Exception, match="column n in Redis"):
        list(Enrichment(plan, Lookup(plan.source)).run(iter([batch])))
