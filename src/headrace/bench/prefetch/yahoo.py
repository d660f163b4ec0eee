"""The Yahoo benchmark's look-ups: campaigns of ads from a real Redis that is some milliseconds away.

Tasks of `PARTS` Arrow batches look up their ads as `enrich` does; ads are Zipf, and a worker remembers a
fifth of them. Between two Arrow batches the JVM is given `PARSE_MS` to parse the next events. A proxy on
loopback delays what it passes on.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from headrace.bench.common import report
from headrace.clock import SYSTEM_CLOCK
from headrace.outside.address import parsed
from headrace.outside.client import RedisClient
from headrace.outside.lookup import Lookup
from headrace.outside.loop import LoopThread
from headrace.outside.redis import RedisSource
from headrace.spark.enrich.task import AHEAD, KEY, Enrichment, EnrichPlan
from headrace.store.base.waits import merged, quantile_ms

ADS, SKEW, PARTS, ROWS, PARSE_MS = 100_000, 0.8, 8, 4_000, 12.0
DELAYS_MS = (0.0, 1.5, 23.0)
Redis = Callable[[Path], AbstractContextManager[Any]]  # starts a server that has a `url`


def yahoo(quick: bool, console: Console, redis: Redis) -> tuple[dict[str, float], Any]:
    """Waits by row, one look-up at a time over look-ups ahead."""
    tasks = 6 if quick else 20
    figures: dict[str, dict[str, dict[str, float]]] = {}
    ratios: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        redis(Path(folder)) as server,
    ):
        asyncio.run(_load(server.url))
        for delay_ms in DELAYS_MS:
            with LoopThread() as loop, _delayed(loop, server.url, delay_ms) as url:
                measured = {ahead: _tasks(url, ahead, tasks) for ahead in (0, AHEAD)}
            alone, ahead = measured[0], measured[AHEAD]
            figures[f"{delay_ms:g} ms"] = {"lru": alone, "prefetch": ahead}
            name = f"yahoo_{delay_ms:g}ms"
            for quantile in ("p50", "p99.9"):
                ratios[f"{name}_{quantile}"] = max(alone[quantile], 0.001) / max(ahead[quantile], 0.001)
            ratios[f"{name}_rows_per_s"] = ahead["rows_per_s"] / alone["rows_per_s"]
    rows = [
        (delay, side, f"{one['p50']:.2f}", f"{one['p99.9']:.2f}", f"{one['rows_per_s']:,.0f}")
        for delay, sides in figures.items()
        for side, one in sides.items()
    ]
    report.show(console, "yahoo", ("Redis away", "side", "p50, ms", "p99.9, ms", "rows/s"), rows)
    return ratios, figures


async def _load(url: str) -> None:
    client = RedisClient(parsed(url))
    for start in range(0, ADS, 1000):
        pairs = [part for ad in range(start, start + 1000) for part in (f"ad-{ad}", f"campaign-{ad % 100}")]
        await client.execute("MSET", *pairs)
    await client.close()


def _tasks(url: str, ahead: int, tasks: int) -> dict[str, float]:
    source = RedisSource(parsed(url), ("campaign_id",), cache_entries=ADS // 5)
    plan, random = (
        EnrichPlan(source, pa.schema([("campaign_id", pa.string())]), ahead),
        np.random.default_rng(7),
    )
    weights = 1 / np.arange(1, ADS + 1) ** SKEW
    chances, lookup, all_waits = weights / weights.sum(), Lookup(source), []
    drawn = random.choice(ADS, (tasks + 1, PARTS, ROWS), p=chances)
    begun = SYSTEM_CLOCK.monotonic_ms()
    for number, task in enumerate(drawn):
        if number == 1:  # the first one fills the memory
            begun = SYSTEM_CLOCK.monotonic_ms()
        enrichment = Enrichment(plan, lookup)
        for _ in enrichment.run(_parsed(task)):
            pass
        all_waits.append(enrichment.waits)
    spent_s = (SYSTEM_CLOCK.monotonic_ms() - begun) / 1000
    waits = merged([one.pairs() for one in all_waits[1:]])
    quantiles = {f"p{100 * part:g}": round(quantile_ms(waits, part), 3) for part in (0.5, 0.99, 0.999)}
    return {**quantiles, "rows_per_s": round(tasks * PARTS * ROWS / spent_s)}


def _parsed(task: np.ndarray) -> Iterator[pa.RecordBatch]:
    for numbers in task:
        SYSTEM_CLOCK.sleep_ms(PARSE_MS)
        yield pa.RecordBatch.from_pydict({KEY: [f"ad-{number}" for number in numbers.tolist()]})


@contextmanager
def _delayed(loop: LoopThread, url: str, delay_ms: float) -> Iterator[str]:
    """The address of a proxy that passes bytes on to Redis late; the way back takes no time."""
    address = parsed(url)

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late_ms: float) -> None:
        clock, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

        async def write() -> None:
            while (item := await queue.get())[1]:
                await asyncio.sleep(max(0.0, item[0] - clock.time()))
                writer.write(item[1])
            writer.close()

        writing = asyncio.create_task(write())
        while data := await reader.read(1 << 16):
            queue.put_nowait((clock.time() + late_ms / 1000, data))
        queue.put_nowait((0.0, b""))
        await writing

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, mine = await asyncio.open_connection(address.host, address.port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(passed(reader, mine, delay_ms), passed(theirs, writer, 0.0))

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(connected, "127.0.0.1", 0)

    proxy = loop.run(begin())
    try:
        yield f"redis://127.0.0.1:{proxy.sockets[0].getsockname()[1]}/0"
    finally:
        loop.run(_closed(proxy))


async def _closed(proxy: asyncio.Server) -> None:
    proxy.close()
