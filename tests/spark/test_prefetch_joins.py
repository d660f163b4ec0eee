"""Protects prefetching of joins in a running Spark. Hints from the stage before the shuffle bring the rows
of a static table and of the other stream ahead, and results are those of Spark's own join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from batch_files import run, stream_of, write_batches
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.coordinator.progress import BatchProgress
from headrace.wire.state_reads import StateReads, together

pytestmark = pytest.mark.spark

KEYS, ROWS, BATCHES = 40_000, 2_000, 4
SETTINGS = {"memory": "1m", "partitions": "2", "prefetch": "on"}


@pytest.fixture
def small(own_hosts: SparkSession) -> SparkSession:
    """Hosts with memory for a part of the rows."""
    for name, value in SETTINGS.items():
        own_hosts.conf.set(f"spark.headrace.{name}", value)
    return own_hosts


def keys() -> list[pa.Table]:
    random = np.random.default_rng(7)
    return [pa.table({"k": random.integers(0, KEYS, ROWS)}) for _ in range(BATCHES)]


def names(spark: SparkSession) -> DataFrame:
    return spark.range(KEYS).selectExpr("id AS k", "repeat(cast(id AS string), 20) AS name")


def counted(query: DataFrame, folder: Path) -> list[Any]:
    return sorted(row for batch in run(query, folder / "ck") for row in batch)


def reads_of(progress: list[BatchProgress]) -> StateReads:
    return together([batch.reads for batch in progress])


def test_rows_of_a_static_table_come_ahead(small: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", keys())
    rows, table = stream_of(small, tmp_path / "in"), names(small)
    joined = hr.stream(rows).name("names").lookup(table, on="k", path=str(tmp_path / "table"))
    expected = small.read.parquet(str(tmp_path / "in")).join(table, "k").select(*joined.columns)
    assert counted(joined, tmp_path) == sorted(tuple(row) for row in expected.collect())
    reads = reads_of(hr.progress(str(tmp_path / "ck"))["names"])
    assert reads.lookahead == "stage"
    assert reads.looked_up > ROWS, "the table is larger than memory"
    assert reads.hits > 0
    assert reads.hits <= reads.looked_up
    assert sum(rows for _, rows in reads.waits) >= ROWS * (BATCHES - 1)


def test_rows_of_the_other_stream_come_ahead(small: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "left", [pa.table({"k": [-1]}), *keys()])
    table = names(small).toArrow()
    write_batches(tmp_path / "right", [table, *[table.slice(0, 0)] * BATCHES])
    left, right = stream_of(small, tmp_path / "left"), stream_of(small, tmp_path / "right")
    joined = hr.stream(left).name("both").join(hr.stream(right), on="k")
    expected = small.read.parquet(str(tmp_path / "left")).join(names(small), "k").select(*joined.columns)
    assert counted(joined, tmp_path) == sorted(tuple(row) for row in expected.collect())
    reads = reads_of(hr.progress(str(tmp_path / "ck"))["both"])
    assert reads.lookahead == "stage"
    assert reads.hits > 0
