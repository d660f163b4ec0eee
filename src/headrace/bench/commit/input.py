"""Input of the `commit` benchmark: records as Parquet files, the same for all sides.

One micro-batch is `FILES_PER_BATCH` files with three seconds of event time, as long as the paper's trigger.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.bench.common.workload import FILES_PER_BATCH
from headrace.generators.cluster import EVENTS
from headrace.generators.linear_road import REPORTS
from headrace.generators.records.options import TRIGGER_S, SourceOptions
from headrace.generators.records.records import Kind

DELAY = "3 seconds"
KINDS: dict[str, Kind] = {"lr2": REPORTS, "lr4": REPORTS, "cm1": EVENTS, "cm2": EVENTS}


@dataclass(frozen=True)
class Load:
    """`batches` micro-batches of about `records` records; the first `skipped` are not measured."""

    batches: int
    records: int
    skipped: int

    def folder(self, under: Path, kind: Kind) -> Path:
        return under / f"{kind.name}-{self.batches}-{self.records}"


def write(load: Load, kind: Kind, under: Path) -> None:
    """Writes the files unless they exist; their modification times give their order."""
    folder = load.folder(under, kind)
    if folder.exists():
        return
    folder.mkdir(parents=True)
    options = SourceOptions.parse(kind.name, {"rate": str(load.records // TRIGGER_S)})
    for number in range(load.batches):
        for part in range(FILES_PER_BATCH):
            first = number * load.records
            low, high = (first + load.records * at // FILES_PER_BATCH for at in (part, part + 1))
            path = folder / f"{number:05d}-{part}.parquet"
            pq.write_table(pa.Table.from_batches(kind.batches(options, low, high)), path, compression="lz4")
            stamp = 1_700_000_000 + number * FILES_PER_BATCH + part
            os.utime(path, (stamp, stamp))


def read(spark: Any, load: Load, kind: Kind, under: Path) -> Any:
    """The load as a stream with its watermark."""
    folder = str(load.folder(under, kind))
    rows = spark.readStream.schema(spark.read.parquet(folder).schema)
    return (
        rows.option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(folder).withWatermark("timestamp", DELAY)
    )
