"""Protects joins with a static table: rows meet one generation per batch, the newest when the batch was
planned. A restart and a replay meet the same one. A table that changes is read again when it is due."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_files import run, stream_of, write_batches
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.errors import QueryError
from headrace.spark.lookups.generations import RETAINED, Generations
from headrace.spark.lookups.refresh import Refresh, Refresher
from headrace.spark.lookups.table import reader_of
from headrace.testing.clock import ManualClock

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]


def keys(*values: int | None) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int64()), "n": pa.array(range(len(values)), pa.int64())})


def table(spark: SparkSession, *rows: tuple[int | None, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "k bigint, name string")


def looked_up(spark: SparkSession, folder: Path, rows: DataFrame, how: str = "inner") -> DataFrame:
    stream = hr.stream(stream_of(spark, folder / "in")).name("names")
    return stream.lookup(rows, on="k", how=how, path=str(folder / "table"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_batches(tmp_path / "in", [keys(1, 2, None, 9), keys(2, 2, 3)])
    return tmp_path


EXPECTED = {
    "inner": [
        [(1, 0, "a"), (2, 1, "b"), (2, 1, "bb")],
        [(2, 0, "b"), (2, 0, "bb"), (2, 1, "b"), (2, 1, "bb")],
    ],
    "left": [
        [(1, 0, "a"), (2, 1, "b"), (2, 1, "bb"), (9, 3, None), (None, 2, None)],
        [(2, 0, "b"), (2, 0, "bb"), (2, 1, "b"), (2, 1, "bb"), (3, 2, None)],
    ],
    "semi": [[(1, 0), (2, 1)], [(2, 0), (2, 1)]],
    "anti": [[(9, 3), (None, 2)], [(3, 2)]],
}  # fmt: skip


@pytest.mark.parametrize("how", [*EXPECTED])
def test_rows_meet_the_rows_of_the_table(spark: SparkSession, folder: Path, how: str) -> None:
    rows = table(spark, (1, "a"), (2, "b"), (2, "bb"), (None, "nobody"))
    batches = run(looked_up(spark, folder, rows, how), folder / "ck")
    assert [sorted(batch, key=repr) for batch in batches] == EXPECTED[how]


def test_a_new_generation_replaces_the_one_before(spark: SparkSession, folder: Path) -> None:
    """Also where a partition has no row of the new one; a restart goes on with what it has."""
    first = looked_up(spark, folder, table(spark, (1, "a"), (2, "b")))
    run(first, folder / "ck")
    generations = Generations(spark, str(folder / "table"))
    assert generations.newest() == 1

    write_batches(folder / "in", [keys(1, 2)], first=2)
    again = looked_up(spark, folder, table(spark, (1, "not read: the table was read before")))
    assert [row for batch in run(again, folder / "ck") for row in batch] == [(1, 0, "a"), (2, 1, "b")]

    generations.write(table(spark, (2, "c")))
    write_batches(folder / "in", [keys(1, 2)], first=3)
    assert [row for batch in run(again, folder / "ck") for row in batch] == [(2, 1, "c")]


def test_a_batch_that_runs_again_meets_the_same_generation(spark: SparkSession, folder: Path) -> None:
    """The sink fails after the batch was planned; the table changes before the restart."""
    first = looked_up(spark, folder, table(spark, (1, "a"), (2, "b")))

    def fail(batch: DataFrame, number: int) -> None:
        assert batch.count() > 0
        raise RuntimeError("the sink fails")

    with pytest.raises(Exception, match="the sink fails"):
        run(first, folder / "ck", fail)
    Generations(spark, str(folder / "table")).write(table(spark, (1, "z"), (2, "z")))
    replayed, following = run(looked_up(spark, folder, table(spark)), folder / "ck")[:2]
    assert sorted(replayed) == [(1, 0, "a"), (2, 1, "b")]
    assert {name for _, _, name in following} == {"z"}


def test_python_workers_look_up_too(spark: SparkSession, folder: Path) -> None:
    spark.conf.set("spark.headrace.bridge", "python")
    rows = table(spark, (1, "a"), (2, "b"), (2, "bb"))
    batches = run(looked_up(spark, folder, rows), folder / "ck")
    assert [sorted(batch, key=repr) for batch in batches] == EXPECTED["inner"]


def test_a_generation_is_written_when_it_is_due(spark: SparkSession, tmp_path: Path) -> None:
    clock, versions = ManualClock(), iter([1, 1, 2, 2])
    generations = Generations(spark, str(tmp_path / "table"))
    refresh = Refresh(every_ms=1000, version=lambda: next(versions), read_at_ms=clock.monotonic_ms())
    refresh.read_version = 1
    table(spark, (1, "a")).write.parquet(str(tmp_path / "files"))
    files = spark.read.parquet(str(tmp_path / "files"))
    refresher = Refresher(reader_of(files), generations, refresh, clock)
    table(spark, (2, "b")).write.mode("append").parquet(str(tmp_path / "files"))
    written = []
    for _ in range(4):
        clock.advance_ms(500)
        assert not refresher.step()
        clock.advance_ms(500)
        written.append(refresher.step())
    assert written == [False, False, True, False]
    assert generations.newest() == 1
    stored = spark.read.parquet(str(tmp_path / "table" / "generation-000001"))
    assert sorted(row.name for row in stored.where("NOT __marker").collect()) == ["a", "b"]
    for _ in range(RETAINED + 1):
        generations.write(table(spark, (1, "b")))
    assert len(list((tmp_path / "table").glob("generation-*"))) == RETAINED


def test_what_is_no_table_is_refused(spark: SparkSession, folder: Path) -> None:
    stream = hr.stream(stream_of(spark, folder / "in"))
    for wrong in (stream.df, "names", lambda: stream.df):
        with pytest.raises(QueryError, match="batch DataFrame"):
            stream.lookup(wrong, on="k", path="x")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="only beside rows of the stream"):
        stream.lookup(table(spark), on="k", how="full", path="x")
    with pytest.raises(QueryError, match="no column kk"):
        stream.lookup(table(spark), on="kk", path=str(folder / "table"))
    assert not (folder / "table").exists()
    with pytest.raises(QueryError, match="needs a folder"):
        stream.lookup(table(spark), on="k")
