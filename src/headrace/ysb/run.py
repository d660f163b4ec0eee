"""`headrace ysb`: runs the benchmark on an embedded Spark and compares every count with a replay."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.bench.common.session import local_session
from headrace.clock import SYSTEM_CLOCK, wait_until
from headrace.errors import QueryError
from headrace.generators.ysb import Ads, drawn_ads
from headrace.outside.address import parsed
from headrace.outside.client import RedisClient
from headrace.testing.faults.redis_server import RedisServer, is_installed
from headrace.ysb import input as ysb_input
from headrace.ysb.query import CACHE, start
from headrace.ysb.tables import Counts, loading, send, stored

DOWN_MS = 1_000
FIRST_BATCH_MS = 300_000


@dataclass(frozen=True)
class Outcome:
    """What Redis has, beside what a replay of the input gives."""

    stored: Counts
    replayed: Counts
    took_ms: float
    events: int

    @property
    def wrong(self) -> list[tuple[str, int]]:
        """Campaigns and windows whose counts differ."""
        keys = self.stored.keys() | self.replayed.keys()
        return sorted(key for key in keys if self.stored.get(key) != self.replayed.get(key))


def run(events: int, url: str, restart: bool, console: Console | None = None) -> int:
    """Runs the benchmark; returns 1 if a count differs."""
    console = console or Console()
    plan = ysb_input.Input(events=events)
    with tempfile.TemporaryDirectory(prefix="headrace-ysb-") as folder, ExitStack() as stack:
        scratch = Path(folder)
        server = None if url else stack.enter_context(_server(scratch / "redis"))
        if restart and server is None:
            raise QueryError("--restart with --redis", hint="only a server of its own can be restarted")
        url = server.url if server else url
        ads = prepared(plan, scratch / "input", url)
        settings = {"spark.headrace.partitions": "2"}
        with local_session("headrace-ysb", scratch, 2, settings) as spark:
            console.print(f"{events:,} events in {plan.files} batches; Redis at {parsed(url)!r}")
            outcome = measured(spark, scratch, ads, url, server if restart else None)
    _show(outcome, console)
    return 1 if outcome.wrong else 0


def prepared(plan: ysb_input.Input, folder: Path, url: str) -> Ads:
    """Writes the input, and stores the campaigns in an empty database."""
    ads = drawn_ads(plan.seed)
    ysb_input.write(plan, ads, folder)
    asyncio.run(_load(url, ads))
    return ads


def measured(
    spark: Any, scratch: Path, ads: Ads, url: str, restarted: RedisServer | None, cache: int = CACHE
) -> Outcome:
    """Runs the query to its end; a server that is given is killed and started again in its middle."""
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    query = start(spark, scratch / "input", url, scratch / "checkpoint", cache)
    if restarted is not None:
        _restart(query, restarted)
    query.awaitTermination()
    took_ms = SYSTEM_CLOCK.monotonic_ms() - began_ms
    events = sum(progress.numInputRows for progress in query.recentProgress)
    return Outcome(asyncio.run(stored(url)), ysb_input.replayed(scratch / "input", ads), took_ms, events)


def _restart(query: Any, server: RedisServer) -> None:
    """Kills the server after the first batch, and starts it a second later; the query waits for it."""
    wait_until(lambda: not query.isActive or query.lastProgress is not None, FIRST_BATCH_MS, 20)
    server.kill()
    SYSTEM_CLOCK.sleep_ms(DOWN_MS)
    server.start()


def _server(folder: Path) -> RedisServer:
    if not is_installed():
        raise QueryError(
            "redis-server is not installed",
            hint="install it (Debian: apt-get install redis-server), or name a server: --redis redis://…",
        )
    return RedisServer(folder)


async def _load(url: str, ads: Ads) -> None:
    client = RedisClient(parsed(url))
    try:
        if await client.execute("DBSIZE"):
            raise QueryError(
                f"the database of {parsed(url)!r} is not empty", hint="name an empty one, such as …/5"
            )
        await send(client, loading(ads))
    finally:
        await client.close()


def _show(outcome: Outcome, console: Console) -> None:
    rate = outcome.events / (outcome.took_ms / 1000)
    console.print(f"{outcome.events:,} events in {outcome.took_ms / 1000:.1f} s: {rate:,.0f} events/s")
    for campaign, start_ms in outcome.wrong[:5]:
        key = (campaign, start_ms)
        console.print(f"{campaign} {start_ms}: {outcome.stored.get(key)}, not {outcome.replayed.get(key)}")
    verdict = f"{len(outcome.wrong)} differ from the replay" if outcome.wrong else "all equal to the replay"
    console.print(f"{len(outcome.replayed):,} counts in Redis, {verdict}")
