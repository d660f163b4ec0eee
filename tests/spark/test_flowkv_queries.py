"""Protects FlowKV's eight queries: their rows are those of a batch computation by another engine.

The events are out of order and some are late. q5, q7 and q8 must also give the rows that RisingWave's tests
expect of a small data set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from flowkv_oracle import Oracle, Rows
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.bench.queries import nexmark as queries
from headrace.generators.nexmark import NexmarkConfig, NexmarkGenerator

pytestmark = pytest.mark.spark

DELAY = "4 seconds"
BATCH, EVENTS = 2_000, 16_000
CONFIG = NexmarkConfig(
    rate=200, out_of_order_group=500, late_probability=0.05, late_max_ms=20_000, extra=False
)
VIEWS = {"bid": ("auction", "bidder", "price"), "person": ("id", "name"), "auction": ("seller",)}
DATA = Path(__file__).parents[1] / "data" / "oracles" / "nexmark"
HOUR_LATER = "2015-07-15 01:00:00"
LONG = {"q5", "q5_append", "q7", "q11", "q11_median", "q12"}  # a query of the same kind runs always


@pytest.fixture(scope="module", autouse=True)
def _eager(spark: SparkSession) -> Iterator[None]:
    """A window closes in the batch whose data passes it, as the oracle has it."""
    spark.conf.set("spark.headrace.timing", "eager")
    yield
    spark.conf.unset("spark.headrace.timing")


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(*(_known(view) for view in VIEWS))


def _known(view: str) -> pa.Table:
    """All rows of a view with their time in milliseconds and the micro-batch that brings them."""
    parts = []
    for number, rows in enumerate(_batches(view)):
        times = pc.divide(rows["dateTime"].cast(pa.int64()), 1000)
        batch = pa.array([number] * len(rows))
        parts.append(rows.drop(["dateTime"]).append_column("t", times).append_column("batch", batch))
    return pa.concat_tables(parts)


def _batches(view: str) -> list[pa.Table]:
    generator = NexmarkGenerator(CONFIG)
    starts = range(0, EVENTS, BATCH)
    return [
        pa.table(generator.batch(view, at, at + BATCH)).select([*VIEWS[view], "dateTime"]) for at in starts
    ]


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    """The same rows as streams of files, one per micro-batch."""
    folder = tmp_path_factory.mktemp("events")
    views = {}
    for view in VIEWS:
        (folder / view).mkdir()
        for number, rows in enumerate(_batches(view)):
            path = folder / view / f"{number}.parquet"
            pq.write_table(rows, path)
            os.utime(path, (1000 + number, 1000 + number))  # Spark takes files in the order of their times
        schema = spark.read.parquet(str(folder / view)).schema
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / view))
        views[view] = rows.withWatermark("dateTime", DELAY)
    return views


def streamed(streams: dict[str, DataFrame], query: str) -> DataFrame:
    if query == "q8":
        return queries.q8(streams["person"], streams["auction"])
    return queries.OVER_BIDS[query](streams["bid"])


@dataclass
class Running:
    """A started query and the rows that reached its sink, times in milliseconds."""

    query: Any
    got: Rows

    def rows(self) -> Rows:
        self.query.awaitTermination()
        return sorted(self.got)


def start(df: DataFrame, checkpoint: Path) -> Running:
    got: Rows = []

    def collect(batch: DataFrame, _: int) -> None:
        got.extend(tuple(row) for row in _in_ms(batch).collect())

    writer = df.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    return Running(writer.trigger(availableNow=True).start(), got)


def _in_ms(rows: DataFrame) -> DataFrame:
    columns = ((f"`{name}`", kind) for name, kind in rows.dtypes)
    return rows.selectExpr(
        *(f"unix_millis({name})" if kind == "timestamp" else name for name, kind in columns)
    )


@pytest.mark.parametrize(
    "query", [pytest.param(n, marks=[pytest.mark.long] * (n in LONG)) for n in queries.NAMES]
)
def test_rows_are_those_of_a_batch_computation(
    streams: dict[str, DataFrame], oracle: Oracle, tmp_path: Path, query: str
) -> None:
    expected = oracle.rows(query)
    assert expected
    started = start(streamed(streams, query), tmp_path)
    assert started.rows() == expected
    if query == "q7":  # the rest of the bids came too late, and was counted
        batches = hr.progress(started.query)["bidders"]
        assert sum(batch.late_rows for batch in batches) == oracle.late_bids() > 100


# ── a small data set of others ───────────────────────────────────────────────────────────────


def small(spark: SparkSession, folder: Path, name: str, columns: str) -> DataFrame:
    """A table of the data set, and then one row an hour later that closes all windows."""
    rows = (DATA / f"{name}.jsonl").read_text()
    last = {field: "" if "string" in field else -1 for field in columns.split(", ")}
    closing = {field.split()[0]: value for field, value in last.items()}
    folder.mkdir()
    closed = json.dumps({**closing, "date_time": HOUR_LATER})
    for number, text in enumerate((rows, closed)):
        path = folder / f"{number}.json"
        path.write_text(text)
        os.utime(path, (1000 + number, 1000 + number))  # Spark takes files in the order of their times
    stream = (
        spark.readStream.schema(f"{columns}, date_time timestamp")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder))
    )
    return stream.withColumnRenamed("date_time", "dateTime").withWatermark("dateTime", DELAY)


def expected(query: str) -> list[list[str]]:
    lines = (DATA / f"{query}.txt").read_text().splitlines()
    return sorted(line.split("\t") if "\t" in line else line.split(" ", 3) for line in lines)


@pytest.fixture
def bids(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return small(spark, tmp_path / "bid", "bid", "auction bigint, bidder bigint, price bigint")


def texts(rows: Rows, *columns: int) -> list[list[str]]:
    return sorted([str(row[column]) for column in columns] for row in rows)


@pytest.mark.parametrize("query", ["q5", "q5_append"])
def test_q5_gives_what_others_expect(bids: DataFrame, tmp_path: Path, query: str) -> None:
    rows = start(queries.OVER_BIDS[query](bids), tmp_path / "ck").rows()
    assert texts(rows, 1, 2) == expected("q5")


def test_q7_gives_what_others_expect(bids: DataFrame, tmp_path: Path) -> None:
    rows = start(_written(queries.q7(bids), "dateTime"), tmp_path / "ck").rows()
    assert texts(rows, 0, 2, 1, 3) == expected("q7")


def test_q8_gives_what_others_expect(spark: SparkSession, tmp_path: Path) -> None:
    table = partial(small, spark)
    persons = table(tmp_path / "person", "person", "id bigint, name string")
    auctions = table(tmp_path / "auction", "auction", "seller bigint")
    rows = start(_written(queries.q8(persons, auctions), "start"), tmp_path / "ck").rows()
    assert texts(rows, 0, 1, 2) == expected("q8")


def _written(rows: DataFrame, column: str) -> DataFrame:
    """Times as the expected rows write them: without the point where there is no fraction."""
    return rows.withColumn(column, rows[column].cast("string"))
