"""The queries of the benchmark, their input, and the sides that are compared.

q13  bids with the rows of a static table that has every auction
q18  the latest bid of each bidder for each auction
q19  the ten highest bids of each auction
q20  bids with their auctions

Events are NEXMark's: 2, 6 and 92 of 100 are persons, auctions and bids; half of the bids are for the hot
auction, three quarters are by the hot bidder. People and auctions stay active for the whole run, and the
hot ones change with every 100 auctions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.generators.nexmark import NexmarkConfig, NexmarkGenerator

SEED = 18
ROW_BYTES = 200  # of a bid on the wire, as the paper has them
MODE, CACHE = "spark.headrace.prefetch", "spark.headrace.cache"


@dataclass(frozen=True)
class Scale:
    """How much is loaded before the measurement, and how the measured files come.

    State is at least five times the memory: that of q13 and q20 is smaller, so they get two thirds of it.
    """

    auctions: int
    load_events: int
    file_events: int
    files: int
    memory_mb: int
    load_files: int

    def memory_of(self, query: str) -> int:
        """Megabytes for the host of a query."""
        return self.memory_mb * 2 // 3 if query in ("q13", "q20") else self.memory_mb


FULL = Scale(
    auctions=150_000, load_events=1_600_000, file_events=4_000, files=600, memory_mb=36, load_files=64
)
QUICK = Scale(
    auctions=60_000, load_events=480_000, file_events=2_000, files=200, memory_mb=12, load_files=32
)


@dataclass(frozen=True)
class SparkSide:
    """A cache policy and where hints come from, as settings."""

    name: str
    settings: dict[str, str] = field(default_factory=dict)


def _side(name: str, cache: str, mode: str) -> SparkSide:
    return SparkSide(name, {CACHE: cache, MODE: mode})


SPARK_SIDES = {
    "lru": _side("lru", "lru", "off"),
    "clock": _side("clock", "clock", "off"),
    "async_lru": _side("async_lru", "lru", "door"),
    "async_clock": _side("async_clock", "clock", "door"),
    "prefetch_lru": _side("prefetch_lru", "lru", "on"),
    "prefetch": _side("prefetch", "timestamp", "on"),
    "auto": _side("auto", "timestamp", "auto"),
}
STANDARD = ("lru", "clock", "async_lru", "async_clock", "prefetch_lru", "prefetch")

Rows = Callable[[int, int], pa.Table]  # events from a number to a number


def nexmark_rows(scale: Scale) -> Rows:
    """Events of all kinds as wide rows."""
    config = NexmarkConfig(
        seed=SEED, rate=20_000, extra=True, active_people=scale.auctions // 4,
        in_flight_auctions=scale.auctions,
    )  # fmt: skip
    generator = NexmarkGenerator(config)
    first = scale.auctions * 50 // 3  # so many events have opened as many auctions

    def rows(low: int, high: int) -> pa.Table:
        return pa.Table.from_batches(list(generator.batches("all", first + low, first + high)))

    return rows


def bids_of(events: Any) -> Any:
    """Bids, without a watermark: these queries keep state for good."""
    from pyspark.sql import functions as F

    return events.where(F.col("event_type") == 2).select("bid.*")


def auctions_of(events: Any) -> Any:
    from pyspark.sql import functions as F

    return events.where(F.col("event_type") == 1).select(
        F.col("auction.id").alias("id"), F.col("auction.itemName"), F.col("auction.extra").alias("more")
    )


def q13(events: Any, folder: Path) -> Any:
    import headrace as hr

    table = events.sparkSession.read.parquet(str(folder / "table"))
    return hr.stream(bids_of(events)).name("q13").lookup(table, on="auction", path=str(folder / "gens"))


def q18(events: Any, _folder: Path) -> Any:
    import headrace as hr

    return (
        hr.stream(bids_of(events)).name("q18").groupBy("bidder", "auction").top(1, by=["dateTime", "price"])
    )


def q19(events: Any, _folder: Path) -> Any:
    import headrace as hr

    return hr.stream(bids_of(events)).name("q19").groupBy("auction").top(10, by="price", rank="rank_number")


def q20(events: Any, _folder: Path) -> Any:
    import headrace as hr

    bids, items = bids_of(events).select("auction", "bidder", "price"), auctions_of(events)
    return hr.stream(bids).name("q20").join(hr.stream(items), on=[("auction", "id")])


QUERIES: dict[str, Callable[[Any, Path], Any]] = {"q13": q13, "q18": q18, "q19": q19, "q20": q20}


def side_table(scale: Scale) -> pa.Table:
    """A row of some 300 bytes for each auction that bids can name."""
    first, spare = 1000, scale.load_events + scale.file_events * scale.files
    numbers = np.arange(first, first + scale.auctions + spare * 3 // 50 + 200)
    texts = np.char.add(np.char.zfill(numbers.astype("U12"), 12), "x" * 280)
    return pa.table({"auction": numbers, "value": texts})
