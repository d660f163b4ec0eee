"""Input of the `flowkv` benchmark: NEXMark events as Parquet files, the same for all sides.

No auction or bidder is hot and many are active, so that state exceeds the memory limit. The first event is
late enough that all of them exist. One micro-batch is `FILES_PER_BATCH` files of a stream.

- `bid` is sparse: some bidders pause for longer than a session's gap, so sessions end.
- `busy` is dense, for fixed windows: a window has several bids of a key, as long windows have.
- `dense` is denser still, for sliding windows: even the time between two windows has several.
- `long` is `bid` for so long that sessions end in every batch of its second half.
- `fine` has batches shorter than a slice: the bytes per bid then depend on the slices only.
- Persons and auctions are few among the events, so q8 has its own, denser, stream of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.bench.common.workload import FILES_PER_BATCH
from headrace.generators.nexmark import NexmarkConfig, NexmarkGenerator

DELAY = "4 seconds"
WARM = "warm"
JOIN_EVENTS = 12  # 8 in 100 events are persons or auctions: as many rows as from bids
_COLUMNS = {
    "bid": ["auction", "bidder", "price", "dateTime"],
    "person": ["id", "name", "dateTime"],
    "auction": ["seller", "dateTime"],
}


@dataclass(frozen=True)
class Stretch:
    """`batches` micro-batches of `events` events; `rate` is events per second of event time."""

    batches: int
    events: int
    rate: int
    active: int  # people, and auctions in flight
    skipped: int = 1  # first batches, with small state and a Spark that still compiles

    def config(self, times: int = 1) -> NexmarkConfig:
        return NexmarkConfig(
            rate=self.rate * times,
            extra=False,
            active_people=self.active,
            in_flight_auctions=self.active,
            hot_auction_ratio=1,
            hot_bidder_ratio=1,
            hot_seller_ratio=1,
        )


@dataclass(frozen=True)
class Scale:
    """The size of each stream."""

    sparse: Stretch
    long: Stretch
    busy: Stretch
    dense: Stretch
    fine: Stretch
    warm: Stretch  # of every stream, before the measurement: many batches, so that plans get compiled
    memory_bytes: int
    is_short: bool = False  # too short for a ratio of speeds: Spark still compiles, and state is small

    def of(self, view: str) -> Stretch:
        named = {"long": self.long, "busy": self.busy, "dense": self.dense, "fine": self.fine}
        return named.get(view, self.sparse)


FINE = Stretch(batches=8, events=50_000, rate=100_000, active=200_000)
FULL = Scale(
    sparse=Stretch(batches=8, events=800_000, rate=200_000, active=1_000_000, skipped=2),
    long=Stretch(batches=14, events=800_000, rate=200_000, active=1_000_000, skipped=7),
    busy=Stretch(batches=8, events=800_000, rate=320_000, active=400_000, skipped=2),
    dense=Stretch(batches=18, events=2_400_000, rate=1_280_000, active=400_000, skipped=10),
    fine=FINE,
    warm=Stretch(batches=200, events=22_500, rate=40_000, active=100_000),
    memory_bytes=32 << 20,
)
QUICK = Scale(
    sparse=Stretch(batches=4, events=350_000, rate=70_000, active=500_000),
    long=Stretch(batches=8, events=350_000, rate=70_000, active=500_000, skipped=4),
    busy=Stretch(batches=4, events=350_000, rate=70_000, active=200_000),
    dense=Stretch(batches=12, events=350_000, rate=280_000, active=150_000),
    fine=FINE,
    warm=Stretch(batches=6, events=20_000, rate=20_000, active=5_000),
    memory_bytes=16 << 20,
    is_short=True,
)


def write(scale: Scale, folder: Path, views: tuple[str, ...]) -> None:
    """Writes the files of these views; their modification times give their order."""
    for view in views:
        _write_view(scale.of(view), folder / view, view)
        _write_view(scale.warm, warm_folder(folder) / view, view)


def warm_folder(folder: Path) -> Path:
    """The folder of the short streams for a side's warm-up."""
    return folder / WARM


def _write_view(stretch: Stretch, folder: Path, view: str) -> None:
    folder.mkdir(parents=True)
    joined = view in ("person", "auction")
    times, kind = (JOIN_EVENTS, view) if joined else (1, "bid")
    generator, events = NexmarkGenerator(stretch.config(times)), stretch.events * times
    first = 50 * stretch.active
    for number in range(stretch.batches):
        start = first + number * events
        for part in range(FILES_PER_BATCH):
            low, high = (start + events * at // FILES_PER_BATCH for at in (part, part + 1))
            rows = pa.Table.from_batches(generator.batches(kind, low, high)).select(_COLUMNS[kind])
            path = folder / f"{number:05d}-{part}.parquet"
            pq.write_table(rows, path, compression="lz4")
            stamp = 1_700_000_000 + number * FILES_PER_BATCH + part
            os.utime(path, (stamp, stamp))


def read(spark: Any, folder: Path, view: str, files: str = "*") -> Any:
    """A stream of a view with its watermark, from files named `<batch in five digits>-…`."""
    schema = spark.read.parquet(str(folder / view)).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH)
    rows = rows.option("pathGlobFilter", files)
    return rows.parquet(str(folder / view)).withWatermark("dateTime", DELAY)
