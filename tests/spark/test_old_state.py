"""Protects state on disk: what version 0.1 wrote opens today and goes on to the results of one batch query.

The checkpoints in `tests/data/state-0.1` were written by commit 22b1e25, one for each store. They have read
four files; the query reads three more. Expected results are Spark's own, over the rows of all files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from old_state import (
    CASES,
    LAST_USER,
    NEW,
    OLD,
    OLD_WATERMARK,
    SCHEMA,
    Row,
    batch,
    place,
    run,
    write_batches,
)
from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

WIDTH_US = 30_000_000
DATA = Path(__file__).parent.parent / "data" / "state-0.1"
STORES = {
    "running": "rmw",
    "tumbling": "rmw",
    "changes": "rmw",
    "sliding": "rmw",
    "session": "rmw",
    "aar": "aar",
    "aur": "aur",
    "range": "range",
    "memory": "memory",
    "auto": "auto",
    "rocksdb": "rocksdb",
    "rocksdb_rows": "rocksdb",
    "join": "aar",
}


def test_there_is_state_of_every_store() -> None:
    assert {path.name for path in DATA.iterdir() if path.is_dir()} == set(CASES)
    recorded = {
        name: json.loads((DATA / name / "headrace-operators" / "op.json").read_text())["spec"]["store"]
        for name in CASES
    }
    assert recorded == STORES


@pytest.fixture(scope="module")
def two_partitions(spark: SparkSession) -> Iterator[SparkSession]:
    """The number of partitions that the old state has."""
    before = spark.conf.get("spark.headrace.partitions")
    spark.conf.set("spark.headrace.partitions", "2")
    yield spark
    spark.conf.set("spark.headrace.partitions", before)


@pytest.mark.parametrize("name", CASES)
def test_old_state_goes_on(two_partitions: SparkSession, tmp_path: Path, name: str) -> None:
    spark, case = two_partitions, CASES[name]
    place(DATA / name, tmp_path)
    write_batches(tmp_path / "in", range(OLD + NEW))
    got = run(spark, name, tmp_path)
    complete = map(tuple, case.batch(_all_rows(spark)).collect())
    wanted = [row for row in complete if _is_emitted(name, row)]
    keys = len(case.keys)
    newest = {row[:keys]: row for row in got if row[0] != LAST_USER}  # of a group that changed twice
    assert len(wanted) > 15
    assert sorted(newest.values(), key=repr) == sorted(wanted, key=repr)


def _all_rows(spark: SparkSession) -> DataFrame:
    rows = [row for number in range(OLD + NEW - 1) for row in batch(number)]
    return spark.createDataFrame(rows, SCHEMA)


def _is_emitted(name: str, row: tuple[Any, ...]) -> bool:
    """Whether the new batches emit a group: a new row changed it, or its window was still open."""
    if name == "running":
        return row[:2] in {(user, item) for user, item, *_ in _new_rows()}
    if name == "changes":
        starts = {(user, item, _us(at) // WIDTH_US * WIDTH_US) for user, item, at, *_ in _new_rows()}
        return row[:3] in starts
    end = row[CASES[name].keys.index("end")]
    return bool(end > _us(OLD_WATERMARK))


def _new_rows() -> list[Row]:
    return [row for number in range(OLD, OLD + NEW - 1) for row in batch(number)]


def _us(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
