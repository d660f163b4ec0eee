"""Rows as files, one per batch, and queries over them: for tests that compare with a batch computation."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

Rows = list[tuple[Any, ...]]
Each = Callable[[DataFrame, int], None]


def write_batches(folder: Path, tables: Sequence[pa.Table], first: int = 0) -> None:
    """One file per batch; Spark reads files in the order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables, first):
        path = folder / f"{number:05}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def cut(table: pa.Table, ends: Sequence[int]) -> list[pa.Table]:
    """The table in parts that end at these rows."""
    bounds = sorted({0, *ends, table.num_rows})
    return [table.slice(at, to - at) for at, to in itertools.pairwise(bounds)]


def stream_of(spark: SparkSession, folder: Path, schema: Any = None) -> DataFrame:
    folder.mkdir(parents=True, exist_ok=True)
    read = spark.read.parquet(str(folder)).schema if schema is None else schema
    return spark.readStream.schema(read).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(df: DataFrame, checkpoint: Path, each: Each | None = None) -> list[Rows]:
    """The rows of each batch, in the order of batches."""
    return finished(df, checkpoint, each)[1]


def finished(
    df: DataFrame, checkpoint: Path, each: Each | None = None
) -> tuple[StreamingQuery, list[Rows]]:
    """A query that has run what there is, and the rows of each of its batches in order."""
    out: dict[int, Rows] = {}

    def collect(batch: DataFrame, number: int) -> None:
        if each is not None:
            each(batch, number)
        out[number] = [tuple(row) for row in batch.collect()]

    query = (
        df.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query, [out[number] for number in sorted(out)]


def latest(batches: list[Rows], keys: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The last row of each key: its first `keys` columns."""
    return {row[:keys]: row for rows in batches for row in rows}
