"""`headrace run`: two NEXMark queries on an embedded Spark, live, with a readable result at the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli.embedded import CLOCK, compile_kernels, feed_of, quiet, session
from headrace.cli.terminal import screen

SOURCE = {
    "view": "bid",
    "extra": "false",
    "rate": "10000",
    "eventsPerBatch": "200000",
    "partitions": "2",
    "lateProbability": "0.001",
    "lateMaxMs": "60000",
}
TRIGGER = "1 second"  # a pause between batches, in which a query can be stopped without breaking off tasks
STOP_WITHIN_MS = 20_000


@dataclass(frozen=True)
class Shown:
    """A query and where its rows go."""

    query: Any
    path: Path


def demonstrate(seconds: int, out: Path) -> None:
    """Run for about `seconds`; started again on the same folder, the queries go on where they stopped."""
    out, console = out.absolute(), Console()
    console.print("[bold]Headrace[/bold]: two stateful queries over NEXMark's bids, on an embedded Spark\n")
    compile_kernels(console)
    with quiet(out) as log_file, session(console, out, "headrace-run", _settings()) as spark:
        from headrace.spark.sources.nexmark import register

        register(spark)
        shown = [_running(spark, out), _windowed(spark, out)]
        console.print(
            f"running for {seconds} s; files go to {out}, Spark's own messages to {log_file.name}\n"
        )
        _watch(spark, shown, seconds, console)
        for each in shown:
            _stop(each.query)
        _results(spark, shown, console)
    shutil.rmtree(out / "scratch", ignore_errors=True)
    _next_steps(console, out)


def _settings() -> Mapping[str, str]:
    return {"spark.headrace.partitions": "2", "spark.sql.session.timeZone": "UTC"}


def _bids(spark: Any) -> Any:
    return spark.readStream.format("nexmark").options(**SOURCE).load()


def _running(spark: Any, out: Path) -> Shown:
    """Running aggregate: every auction's bids so far."""
    import headrace as hr

    auctions = (
        hr.stream(_bids(spark))
        .name("auctions")
        .groupBy("auction")
        .agg(bids=hr.count(), average=hr.avg("price"), top=hr.max("price"))
    )
    return _start("bids per auction, running", auctions, out / "auctions")


def _windowed(spark: Any, out: Path) -> Shown:
    """Tumbling window: what every bidder did in ten seconds, once the window is over."""
    import headrace as hr

    bidders = (
        hr.stream(_bids(spark))
        .name("bidders")
        .withWatermark("dateTime", "4 seconds")
        .groupBy("bidder", hr.tumbling("10 seconds"))
        .agg(bids=hr.count(), spent=hr.sum("price"))
    )
    return _start("bids per bidder, 10 s windows", bidders, out / "bidders")


def _start(title: str, frame: Any, path: Path) -> Shown:
    writer = frame.writeStream.format("parquet").option("path", str(path / "rows")).queryName(title)
    writer = writer.option("checkpointLocation", str(path / "checkpoint")).trigger(processingTime=TRIGGER)
    return Shown(writer.outputMode("append").start(), path / "rows")


def _watch(spark: Any, shown: list[Shown], seconds: int, console: Console) -> None:
    """Show the picture of the application until the time is up or a query has failed."""
    feed = feed_of(spark)
    until = CLOCK.monotonic_ms() + seconds * 1000
    with Live(console=console, refresh_per_second=4) as live:
        while not _over(shown, until):
            live.update(screen(feed.picture(), console.width, live=True))
            CLOCK.sleep_ms(250)
        live.update(screen(feed.picture(), console.width, live=True))


def _over(shown: list[Shown], until_ms: float) -> bool:
    """Time is up and every query has shown something, or one of them has failed."""
    if not all(each.query.isActive for each in shown):
        return True
    return CLOCK.monotonic_ms() >= until_ms and all(_batch_of(each.query) >= 1 for each in shown)


def _stop(query: Any) -> None:
    """Stop between two batches: the output ends with a whole one, and no worker loses its reader."""
    committed = _batch_of(query)
    deadline = CLOCK.monotonic_ms() + STOP_WITHIN_MS
    while query.isActive and CLOCK.monotonic_ms() < deadline:
        if _batch_of(query) > committed and not query.status["isTriggerActive"]:
            break
        CLOCK.sleep_ms(5)
    failed = query.exception()
    query.stop()
    if failed is not None:
        raise failed


def _batch_of(query: Any) -> int:
    latest = query.lastProgress
    return -1 if latest is None else int(latest.batchId)


def _results(spark: Any, shown: list[Shown], console: Console) -> None:
    from pyspark.sql import functions as F

    auctions, bidders = (spark.read.parquet(str(each.path)) for each in shown)
    newest = auctions.groupBy("auction").agg(F.max("bids").alias("bids"), F.max("top").alias("top price"))
    _print(console, "the five busiest auctions so far", newest.orderBy("bids", ascending=False).limit(5))
    columns = bidders.selectExpr(
        "bidder", "date_format(window.start, 'HH:mm:ss') AS window", "bids", "spent"
    )
    title = "the five busiest bidders of any 10 s"
    _print(console, title, columns.orderBy("bids", ascending=False).limit(5))
    console.print(f"{bidders.count():,} closed windows, {newest.count():,} auctions\n")


def _print(console: Console, title: str, frame: Any) -> None:
    """Rows with a bar for their bids."""
    rows = frame.collect()
    most = max((row["bids"] for row in rows), default=1)
    table = Table(title=title, title_justify="left", box=None, header_style="dim")
    for column in frame.columns:
        table.add_column(column, justify="right")
    table.add_column("", justify="left")
    for row in rows:
        cells = [f"{value:,}" if isinstance(value, int) else str(value) for value in row]
        table.add_row(*cells, Text("█" * round(24 * row["bids"] / most), style="#3b7dd8"))
    console.print(table)
    console.print()


def _command() -> str:
    """The command as the user can type it: `make run` has an environment of its own."""
    script = Path(sys.executable).with_name("headrace")
    if shutil.which("headrace") or not script.exists():
        return "headrace"
    return str(script.relative_to(Path.cwd())) if script.is_relative_to(Path.cwd()) else str(script)


def _next_steps(console: Console, out: Path) -> None:
    console.print("[bold]What to try next[/bold]")
    local, checkpoint, command = out / "scratch" / "local", out / "auctions" / "checkpoint", _command()
    steps = (
        (
            f"{command} run",
            "the queries go on where they stopped, also after a kill -9 of any process",
        ),
        (f"{command} top --local {local}", "in another terminal while it runs"),
        (f"{command} view --local {local}", "the same in a browser: timeline, bottleneck, operators"),
        (f"{command} view {checkpoint}", "what this run did, without Spark"),
        (f"{command} state show {checkpoint} auctions", "the state as a table, also while it runs"),
    )
    for typed, text in steps:
        console.print(Text.assemble(("  " + typed, "bold"), ("   " + text, "dim")), soft_wrap=True)
