"""`headrace bench view`: what the live view costs a query, and its memory over a long time at 1 Hz.

The cost is the throughput of the `rmw` query with an open page over that without one, in turns.
`throughput` has a client that takes all of the page and renders nothing, because a user's browser is on
another machine. `with_browser` has a browser on the same cores, with the lowest priority. The long part
runs a query with one batch per second beside an open page. Memory is that of the driver's Python process
and of the page.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.bench.common import report
from headrace.bench.common.session import local_session
from headrace.bench.common.sides import HEADRACE
from headrace.bench.common.workload import Phase, Workload, write
from headrace.bench.page_client import reading
from headrace.bench.rmw import PARTITIONS, measure
from headrace.clock import SYSTEM_CLOCK
from headrace.testing.browser.chromium import Browser

_BATCHES = Workload(
    keys=2_000_000,
    key_bytes=None,
    phases=(Phase("warm", 4, 500_000, load=True), Phase("main", 40, 500_000)),
)
_SIDES = ("closed", "open", "browser")
_TURNS, _TURNS_QUICK = 4, 2  # of each side
_NICENESS = 19
_SAMPLE_MS = 10_000.0
_SHOWN = "globalThis.Bokeh?.documents[0]?.get_model_by_name('batches')?.data.batch.at(-1) >= 0"


def run(*, quick: bool = False, minutes: float = 0, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    console = console or Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        settings = {"spark.headrace.partitions": str(PARTITIONS)}
        with local_session("headrace-bench-view", scratch, PARTITIONS, settings) as spark:
            rates = _cost(spark, scratch, _TURNS_QUICK if quick else _TURNS, console)
            samples = _watch(spark, scratch, minutes, console) if minutes else []
    closed, opened, browsed = (statistics.median(rates[name]) for name in _SIDES)
    ratios = {"throughput": opened / closed, "with_browser": browsed / closed}
    driver, page = _growth([s[0] for s in samples]), _growth([s[1] for s in samples])
    if samples:
        ratios.update(driver_memory=driver[1] / driver[0], page_memory=page[1] / page[0])
    report.show(
        console,
        "the live view",
        ("", "rows/s, median"),
        [
            ("page closed", f"{closed:,.0f}"),
            ("page open", f"{opened:,.0f}"),
            ("page in a browser on the same cores", f"{browsed:,.0f}"),
        ],
    )
    return report.last_line(
        "view",
        ratios,
        rows_per_s={name: [round(rate) for rate in turns] for name, turns in rates.items()},
        minutes=minutes,
        driver_mb=[report.mb(round(value)) for value in driver],
        page_mb=[round(value / 1e6, 1) for value in page],
    )


def _cost(spark: Any, scratch: Path, turns: int, console: Console) -> dict[str, list[float]]:
    """Rows per second of each turn, by who has the page open. The first turns are not counted."""
    console.print(f"writing {_BATCHES.batches} batches of input …")
    write(_BATCHES, scratch / "input")
    rates: dict[str, list[float]] = {name: [] for name in _SIDES}
    for turn in range(len(_SIDES) * (1 + turns)):
        name = _SIDES[turn % len(_SIDES)]
        side = replace(HEADRACE, name=f"turn-{turn}", title=f"page: {name}")
        with _viewer(spark, name):
            outcome = measure(spark, side, _BATCHES, scratch, console)
        if turn >= len(_SIDES):
            rates[name].append(outcome.rows_per_s(_BATCHES, "main"))
    return rates


@contextmanager
def _viewer(spark: Any, name: str) -> Iterator[None]:
    """Whoever has the page open while a side is measured."""
    import headrace as hr

    if name == "closed":
        yield
    elif name == "browser":
        with _page(spark):
            yield
    else:
        view = hr.view(spark)
        try:
            with reading(view.url):
                yield
        finally:
            view.stop()


@contextmanager
def _page(spark: Any) -> Iterator[Browser]:
    """A headless browser at the view's page."""
    import headrace as hr

    view = hr.view(spark)
    try:
        with Browser(niceness=_NICENESS) as browser:
            browser.open(view.url)
            browser.until("!!globalThis.Bokeh?.documents[0]")
            yield browser
    finally:
        view.stop()


def _watch(spark: Any, scratch: Path, minutes: float, console: Console) -> list[tuple[int, int]]:
    """Memory of the driver and of the page in bytes, every ten seconds of a query at 1 Hz."""
    import headrace as hr

    rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    keyed = rows.selectExpr("value % 100 AS key", "value AS amount", "timestamp")
    totals = hr.stream(keyed).groupBy("key").agg(n=hr.count(), total=hr.sum("amount"))
    writer = totals.writeStream.format("noop").option("checkpointLocation", str(scratch / "hour"))
    query = writer.queryName("hour").trigger(processingTime="1 second").start()
    samples: list[tuple[int, int]] = []
    try:
        with _page(spark) as page:
            page.until(_SHOWN)
            while len(samples) * _SAMPLE_MS < minutes * 60_000:
                SYSTEM_CLOCK.sleep_ms(_SAMPLE_MS)
                samples.append((_resident_bytes(), page.heap_bytes()))
                console.print(f"{len(samples) * _SAMPLE_MS / 60_000:.1f} min: {samples[-1]}")
    finally:
        query.stop()
    return samples


def _growth(samples: Sequence[int]) -> tuple[float, float]:
    """Medians of the second and the last sixth of the samples: the first sixth fills caches."""
    sixth = max(1, len(samples) // 6)
    if len(samples) < 2:
        return 0.0, 0.0
    return statistics.median(samples[sixth : 2 * sixth]), statistics.median(samples[-sixth:])


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
