"""`headrace nexmark`: one of NEXMark's queries on an embedded Spark, live, with a part of its result."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.cli.embedded import CLOCK, compile_kernels, feed_of, quiet, session
from headrace.cli.terminal import screen
from headrace.errors import SettingError

if TYPE_CHECKING:
    from headrace.nexmark.registry import Query
    from headrace.pages.feed import Feed

SHOWN = 8  # rows of the result
CELL = 26  # characters of a value
SETTINGS = {"spark.headrace.partitions": "2", "spark.sql.session.timeZone": "UTC"}
_UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}


@dataclass(frozen=True)
class Requested:
    """What to run: a query over so many events."""

    query: Query
    events: int
    rate: int
    batches: int

    @property
    def options(self) -> dict[str, str]:
        """Options of the source."""
        of_batch = -(-self.events // max(1, self.batches))
        return {"events": str(self.events), "rate": str(self.rate), "eventsPerBatch": str(of_batch)}


def number_of(text: str) -> int:
    """A number of events, such as 200K or 5M."""
    written = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", text.strip().upper().replace("_", ""))
    if written is None:
        raise SettingError(f"{text!r} is not a number of events", hint="write 200K, 5M or 5000000")
    return int(float(written[1]) * _UNITS[written[2]])


def list_queries(console: Console | None = None) -> None:
    """Prints every query with its meaning and the streams that it reads."""
    from headrace.nexmark.registry import QUERIES

    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("query", "result", "reads", "what it computes"):
        table.add_column(column)
    kinds = {"rows": "rows", "changes": "rows that change", "changelog": "changelog"}
    for query in QUERIES.values():
        reads = ", ".join(name for name in query.inputs if name != "side_path").replace("_", " ")
        table.add_row(Text(query.name, style="bold"), kinds[query.shape], reads, query.title)
    (console or Console()).print(table)


def run(name: str, events: str, rate: str, batches: int, console: Console | None = None) -> None:
    """Runs the query over generated events."""
    from headrace.nexmark.registry import query_of

    console = console or Console()
    requested = Requested(query_of(name), number_of(events), number_of(rate), batches)
    console.print(f"[bold]NEXMark {name}[/bold]: {requested.query.title}\n")
    compile_kernels(console)
    with tempfile.TemporaryDirectory(prefix="headrace-nexmark-") as folder:
        out = Path(folder)
        with quiet(out), session(console, out, f"headrace-nexmark-{name}", SETTINGS) as spark:
            _run(spark, requested, out, console)


def _run(spark: Any, requested: Requested, out: Path, console: Console) -> None:
    from headrace.nexmark.streams import read

    streams = read(spark, requested.options, only_bids=requested.query.only_bids)
    df = requested.query.over(replace(streams, side_path=str(out / "side")))
    began = CLOCK.monotonic_ms()
    query = _started(df, out)
    _watch(query, requested, feed_of(spark), console)
    query.awaitTermination()
    took_ms = CLOCK.monotonic_ms() - began
    _result(spark, requested.query, out / "rows", console)
    _figures(query, requested, took_ms, console)


def _started(df: Any, out: Path) -> Any:
    from pyspark.sql import functions as F

    def write(batch: Any, number: int) -> None:
        rows = batch.withColumn("_batch", F.lit(number))
        rows.write.mode("overwrite").parquet(str(out / "rows" / f"batch-{number:06}"))

    writer = df.writeStream.foreachBatch(write).option("checkpointLocation", str(out / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def _watch(query: Any, requested: Requested, feed: Feed, console: Console) -> None:
    """Shows how far the query is, and its operators, until it ends."""
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while query.isActive:
            done = sum(int(one.numInputRows) for one in query.recentProgress)
            total = requested.events * (46 if requested.query.only_bids else 50) // 50
            bar = ProgressBar(total=total, completed=done, width=60)
            text = Text(f"{done:,} of {total:,} rows read", style="dim")
            live.update(Group(bar, text, Text(""), screen(feed.picture(), console.width, live=True)))
            CLOCK.sleep_ms(250)


def _result(spark: Any, query: Query, folder: Path, console: Console) -> None:
    """Prints a few rows of the result as it is at the end."""
    from pyspark.sql import functions as F

    rows = spark.read.parquet(str(folder / "batch-*"))
    if query.shape == "rows":
        final = rows.drop("_batch")
    else:
        columns = [name for name in rows.columns if name not in (*query.keys, "_batch")]
        newest = F.max_by(F.struct(*columns), F.struct("_batch", _is_new(rows))).alias("newest")
        final = rows.groupBy(*query.keys).agg(newest).select(*query.keys, "newest.*")
        final = final.where(_is_new(final)).drop("_kind")
    count, shown = final.count(), final.orderBy(*final.columns[:2]).limit(SHOWN)
    table = Table(title=f"{count:,} rows, the first of them", title_justify="left", box=None)
    for column in shown.columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis", max_width=CELL)
    for row in shown.collect():
        table.add_row(*(_cell(value) for value in row))
    console.print(table)


def _is_new(rows: Any) -> Any:
    from pyspark.sql import functions as F

    return F.col("_kind").isin("insert", "update_after") if "_kind" in rows.columns else F.lit(True)


def _cell(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _figures(query: Any, requested: Requested, took_ms: float, console: Console) -> None:
    """Prints the speed of the query, and the state of its operators."""
    import headrace as hr

    rate = requested.events / max(took_ms, 1) * 1000
    console.print(
        f"\n{requested.events:,} events in {took_ms / 1000:.1f} s: [bold]{rate:,.0f} events/s[/bold]"
    )
    for name, batches in hr.progress(query).items():
        last, late = batches[-1], sum(batch.late_rows for batch in batches)
        rows = sum(batch.rows_in for batch in batches)
        size = f"{last.state_bytes / 1e6:,.1f} MB of state, {last.keys:,} rows in it"
        console.print(f"  {name}: {rows:,} rows in, {late:,} late; {size}")
