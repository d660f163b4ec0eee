"""Input of the `nexmark` benchmark: wide NEXMark events as Parquet files, the same for all sides."""

from __future__ import annotations

import os
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


@dataclass(frozen=True)
class Scale:
    """`batches` of `events` events at `rate` per second of event time; the first `skipped` do not count."""

    batches: int
    events: int
    rate: int
    skipped: int
    spark_batches: int  # Spark needs many seconds for a batch of some queries
    warm_batches: int = 2

    @property
    def span_s(self) -> float:
        """Seconds of event time."""
        return self.batches * self.events / self.rate


FULL = Scale(batches=12, events=400_000, rate=100_000, skipped=4, spark_batches=8)
QUICK = Scale(batches=4, events=60_000, rate=12_000, skipped=1, spark_batches=4, warm_batches=1)


def write(scale: Scale, folder: Path) -> None:
    """Writes all files; their modification times give their order."""
    folder.mkdir(parents=True)
    generator = NexmarkGenerator(NexmarkConfig(rate=scale.rate, extra=False))
    for number in range(scale.batches):
        for part in range(FILES_PER_BATCH):
            low, high = (
                number * scale.events + scale.events * at // FILES_PER_BATCH for at in (part, part + 1)
            )
            rows = pa.Table.from_batches(generator.batches("all", low, high))
            path = folder / f"{number:05d}-{part}.parquet"
            pq.write_table(rows, path, compression="lz4")
            stamp = 1_700_000_000 + number * FILES_PER_BATCH + part
            os.utime(path, (stamp, stamp))


def read(spark: Any, folder: Path, batches: int) -> Streams:
    """The streams of the first batches."""
    schema = spark.read.parquet(str(folder)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH)
    names = "{" + ",".join(f"{number:05d}-*" for number in range(batches)) + "}"
    return streams_of(reader.option("pathGlobFilter", names).parquet(str(folder)))
