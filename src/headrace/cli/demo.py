"""`headrace run`: two NEXMark queries on an embedded Spark, live, with a readable result at the end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from rich.console import Console
from rich.live import Live
from rich.table import Table

import headrace as hr
from headrace.bench.session import local_session
from headrace.spark.nexmark_source import register

SOURCE = {
    "view": "bid",
    "extra": "false",
    "rate": "10000",
    "eventsPerBatch": "200000",
    "partitions": "2",
    "lateProbability": "0.001",
    "lateMaxMs": "60000",
}


@dataclass(frozen=True)
class Shown:
    """A query and what the screen calls it."""

    title: str
    query: Any
    path: Path


def demonstrate(seconds: int, out: Path) -> None:
    """Run for about `seconds`; started again on the same folder, the queries go on where they stopped."""
    out, console = out.absolute(), Console()
    console.print(
        f"[bold]Headrace[/bold]: NEXMark bids for {seconds} s on an embedded Spark. Files go to {out}"
    )
    with local_session("headrace-run", out / "scratch", settings=_settings()) as spark:
        register(spark)
        shown = [_running(spark, out), _windowed(spark, out)]
        with Live(console=console, refresh_per_second=4) as live:
            until = time.monotonic() + seconds
            while not _over(shown, until):
                live.update(_screen(shown))
                time.sleep(0.25)
            live.update(_screen(shown))
        for each in shown:
            _stop(each.query)
        _results(spark, shown, console)
    shutil.rmtree(out / "scratch", ignore_errors=True)
    console.print(
        f"Output, checkpoints and state lie in {out}. Run it again and the queries go on from there."
    )


def _over(shown: list[Shown], until: float) -> bool:
    """Time is up and every query has shown something, or one of them has failed."""
    if not all(each.query.isActive for each in shown):
        return True
    return time.monotonic() >= until and all(_batch_of(each.query) >= 1 for each in shown)


def _settings() -> Mapping[str, str]:
    return {"spark.headrace.partitions": "2", "spark.sql.session.timeZone": "UTC"}


def _bids(spark: Any) -> Any:
    return spark.readStream.format("nexmark").options(**SOURCE).load()


def _running(spark: Any, out: Path) -> Shown:
    """Running aggregate: every auction's bids so far."""
    auctions = (
        hr.stream(_bids(spark))
        .name("auctions")
        .groupBy("auction")
        .agg(bids=hr.count(), average=hr.avg("price"), top=hr.max("price"))
    )
    return _start("bids per auction, running", auctions, out / "auctions")


def _windowed(spark: Any, out: Path) -> Shown:
    """Tumbling window: what every bidder did in ten seconds, once the window is over."""
    bidders = (
        hr.stream(_bids(spark))
        .name("bidders")
        .withWatermark("dateTime", "4 seconds")
        .groupBy("bidder", hr.tumbling("10 seconds"))
        .agg(bids=hr.count(), spent=hr.sum("price"))
    )
    return _start("bids per bidder, 10 s windows", bidders, out / "bidders")


def _start(title: str, frame: Any, path: Path) -> Shown:
    writer = frame.writeStream.format("parquet").option("path", str(path / "rows"))
    query = writer.option("checkpointLocation", str(path / "checkpoint")).outputMode("append").start()
    return Shown(title, query, path / "rows")


def _stop(query: Any) -> None:
    """Let the batch under way finish, so that the output ends with a whole batch."""
    committed = _batch_of(query)
    deadline = time.monotonic() + 20
    while query.isActive and _batch_of(query) == committed and time.monotonic() < deadline:
        time.sleep(0.05)
    failed = query.exception()
    query.stop()
    if failed is not None:
        raise failed


def _batch_of(query: Any) -> int:
    latest = query.lastProgress
    return -1 if latest is None else int(latest.batchId)


def _screen(shown: list[Shown]) -> Table:
    table = Table(title="live progress")
    for column in ("query", "batch", "rows/s", "batch ms", "keys", "state MB", "late rows", "event time"):
        table.add_column(column, justify="left" if column == "query" else "right")
    for each in shown:
        table.add_row(each.title, *_figures(each.query))
    return table


def _figures(query: Any) -> list[str]:
    latest = query.lastProgress
    operators = hr.progress(query)
    if latest is None or not operators:
        return ["starting", *[""] * 6]
    batches = next(iter(operators.values()))
    now = batches[-1]
    took_ms = float(latest.durationMs.get("triggerExecution", 0)) or 1.0
    watermark = (
        "" if now.watermark_ms is None else time.strftime("%H:%M:%S", time.gmtime(now.watermark_ms / 1000))
    )
    return [
        str(latest.batchId),
        f"{latest.numInputRows / took_ms * 1000:,.0f}",
        f"{took_ms:,.0f}",
        f"{now.keys:,}",
        f"{now.state_bytes / 1e6:,.1f}",
        f"{sum(batch.late_rows for batch in batches):,}",
        watermark,
    ]


def _results(spark: Any, shown: list[Shown], console: Console) -> None:
    auctions, bidders = (spark.read.parquet(str(each.path)) for each in shown)
    newest = auctions.groupBy("auction").agg(F.max("bids").alias("bids"), F.max("top").alias("top"))
    _print(console, "the five busiest auctions so far", newest.orderBy("bids", ascending=False).limit(5))
    columns = bidders.selectExpr(
        "bidder", "date_format(window.start, 'HH:mm:ss') AS window", "bids", "spent"
    )
    _print(
        console, "the five busiest bidders of any 10 s", columns.orderBy("bids", ascending=False).limit(5)
    )
    console.print(f"{bidders.count():,} closed windows, {newest.count():,} auctions")


def _print(console: Console, title: str, frame: Any) -> None:
    table = Table(title=title)
    for column in frame.columns:
        table.add_column(column, justify="right")
    for row in frame.collect():
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
    console.print(table)
