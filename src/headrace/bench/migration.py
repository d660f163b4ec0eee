"""`headrace bench migration`: the cost of batches while state migrates from memory to another store.

The query is an unmarked function of the user over windows that overlap in part. Its state begins in memory
and migrates to the `range` store once it has grown; the files are written beside the batches. A batch is as
long as the windows' slide, so each batch closes one window. The query runs twice, the first time as a
warm-up of Spark and host.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from rich.console import Console

import headrace as hr
from headrace.bench.common import report
from headrace.bench.common.follow import Ran, follow
from headrace.bench.common.hostwatch import host_peak_bytes, reset_peaks
from headrace.bench.common.session import local_session
from headrace.bench.flowkv.input import FINE, Scale, Stretch, read, write
from headrace.errors import QueryError

PARTITIONS = 8  # with large pieces of a slice the state would stay in slices and not migrate
SLIDE_S = 12
MEMORY_BYTES = 34 << 20
SHELVES = 512
FULL = Stretch(batches=40, events=80_000, rate=80_000 // SLIDE_S, active=10_000)
QUICK = Stretch(batches=14, events=80_000, rate=80_000 // SLIDE_S, active=10_000)
_RESULT = "shelf bigint, rows bigint, highest bigint"


@dataclass(frozen=True)
class Moved:
    """The time of the migration and of the batches, without the first one."""

    stores: tuple[str, ...]  # stores of the state, by batch
    took_ms: tuple[float, ...]
    host_peak_bytes: int = 0

    @property
    def last(self) -> int:
        """The last batch that the migration may have touched: one after the first in the new store."""
        final = self.stores[-1]
        return min(len(self.stores) - 1, self.stores.index(final) + 1)

    @property
    def ratio(self) -> float:
        """The largest batch time up to that batch over the median of all."""
        return max(self.took_ms[: self.last + 1]) / statistics.median(self.took_ms)


def run(*, quick: bool = False, console: Console | None = None) -> str:
    """Runs the benchmark and returns its JSON line."""
    return measure(QUICK if quick else FULL, console or Console(stderr=True))


def measure(stretch: Stretch, console: Console) -> str:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        scratch = Path(folder)
        scale = Scale(stretch, stretch, stretch, stretch, FINE, FINE, MEMORY_BYTES)
        write(scale, scratch / "input", ("bid",))
        settings = {
            "spark.headrace.memory": str(MEMORY_BYTES),
            "spark.headrace.partitions": str(PARTITIONS),
            "spark.sql.session.timeZone": "UTC",
        }
        with local_session("headrace-bench-migration", scratch / "spark", settings=settings) as spark:
            for title in ("warm-up", "measured"):
                reset_peaks(spark)
                bids = read(spark, scratch / "input", "bid")
                ran = follow(query(bids), scratch / f"checkpoint-{title}", title, console)
            moved = replace(_moved(ran), host_peak_bytes=host_peak_bytes(spark))
    return _report(moved, console)


def query(bids: Any) -> Any:
    """The highest price of each shelf of auctions, by a function of the user."""
    return (
        hr.stream(bids.withColumn("shelf", F.col("auction") % SHELVES))
        .name("shelves")
        .groupBy("shelf", hr.sliding("30 seconds", f"{SLIDE_S} seconds"))
        .applyInArrow(_highest, _RESULT)
    )


def _highest(key: Any, rows: pa.Table) -> pa.Table:
    highest = pc.max(rows.column("price")).as_py()
    return pa.table({"shelf": [key[0].as_py()], "rows": [rows.num_rows], "highest": [highest]})


def _moved(ran: Ran) -> Moved:
    """The batches with input, without the first one, which starts the host's partitions."""
    batches = [one for one in hr.progress(ran.query)["shelves"] if ran.rows.get(one.batch)][1:]
    moved = Moved(tuple(one.store for one in batches), tuple(ran.took_ms[one.batch] for one in batches))
    if len(set(moved.stores)) < 2:
        raise QueryError(
            f"the state stayed in {moved.stores[-1]}", hint="this is a defect of the benchmark"
        )
    return moved


def _report(moved: Moved, console: Console) -> str:
    rows = [
        (str(at), store, f"{ms:.0f}")
        for at, (store, ms) in enumerate(zip(moved.stores, moved.took_ms, strict=True), 1)
    ]
    report.show(console, "State that moves", ("batch", "store", "ms"), rows)
    return report.last_line(
        "migration",
        {"largest_over_median": moved.ratio},
        moved_to=moved.stores[-1],
        batches_until=moved.last + 1,
        median_ms=round(statistics.median(moved.took_ms), 1),
        largest_ms=round(max(moved.took_ms[: moved.last + 1]), 1),
        memory_mb=report.mb(MEMORY_BYTES),
        host_peak_mb=report.mb(moved.host_peak_bytes),
    )
