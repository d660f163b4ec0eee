"""Input of the `nexmark` benchmark: wide NEXMark events as Parquet files, the same for all sides.

Persons and auctions are 8 in 100 events. So queries without bids read a denser stream of their own,
`sellers`: no bids, and so many more events that a batch has about as many rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.bench.common.workload import FILES_PER_BATCH
from headrace.generators.nexmark import NexmarkConfig, NexmarkGenerator
from headrace.nexmark.streams import streams_of

if TYPE_CHECKING:
    from headrace.nexmark.streams import Streams


ALL, SELLERS = "all", "sellers"
DENSER = 12


@dataclass(frozen=True)
class Scale:
    """`batches` of `events` events at `rate` per second of event time; the first `skipped` do not count."""

    batches: int
    events: int
    rate: int
    skipped: int
    spark_batches: int  # Spark needs many seconds for a batch of some queries
    warm_batches: int = 2

    def rows(self, stream: str) -> int:
        """Rows of a batch."""
        return self.events if stream == ALL else self.events * DENSER * 4 // 50

    @property
    def span_s(self) -> float:
        """Seconds of event time."""
        return self.batches * self.events / self.rate


FULL = Scale(batches=12, events=400_000, rate=100_000, skipped=4, spark_batches=8)
QUICK = Scale(batches=4, events=60_000, rate=12_000, skipped=1, spark_batches=4, warm_batches=1)


def write(scale: Scale, folder: Path, streams: Iterable[str] = (ALL, SELLERS)) -> None:
    """Writes all files of the streams; their modification times give their order."""
    for stream in streams:
        times = 1 if stream == ALL else DENSER
        (folder / stream).mkdir(parents=True)
        generator = NexmarkGenerator(NexmarkConfig(rate=scale.rate * times, extra=False))
        for number in range(scale.batches * FILES_PER_BATCH):
            size = scale.events * times
            low, high = (size * at // FILES_PER_BATCH for at in (number, number + 1))
            path = folder / stream / f"{number // FILES_PER_BATCH:05d}-{number % FILES_PER_BATCH}.parquet"
            pq.write_table(_rows(generator, stream, low, high), path, compression="lz4")
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _rows(generator: NexmarkGenerator, stream: str, low: int, high: int) -> pa.Table:
    rows = generator.without_bids(low, high) if stream == SELLERS else generator.batches("all", low, high)
    return pa.Table.from_batches(rows)


def read(spark: Any, folder: Path, batches: int) -> Streams:
    """The streams of the first batches."""
    schema = spark.read.parquet(str(folder)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH)
    names = "{" + ",".join(f"{number:05d}-*" for number in range(batches)) + "}"
    return streams_of(reader.option("pathGlobFilter", names).parquet(str(folder)))
