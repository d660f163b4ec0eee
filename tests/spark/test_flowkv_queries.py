"""Protects FlowKV's eight queries: their rows are those of a batch computation by another engine.

The events are out of order and some are late. q5, q7 and q8 must also give the rows that RisingWave's tests
expect of a small data set.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from flowkv_oracle import Oracle, Rows
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.bench.nexmark import NexmarkGenerator, queries
from headrace.bench.nexmark.options import NexmarkOptions
from headrace.spark.nexmark_source import register

pytestmark = pytest.mark.spark

DELAY = "4 seconds"
BATCH, EVENTS = 2_000, 16_000
SOURCE = {
    "rate": "200",
    "outOfOrderGroup": "500",
    "lateProbability": "0.05",
    "lateMaxMs": "20000",
    "eventsPerBatch": str(BATCH),
    "events": str(EVENTS),
    "partitions": "2",
    "extra": "false",
}
DATA = Path(__file__).parents[1] / "data" / "oracles" / "nexmark"
HOUR_LATER = "2015-07-15 01:00:00"


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(
        _events("bid", "auction", "bidder", "price"),
        _events("person", "id", "name"),
        _events("auction", "seller"),
    )


def _events(view: str, *columns: str) -> pa.Table:
    """All rows of a view with their time in milliseconds and the micro-batch that brings them."""
    generator = NexmarkGenerator(NexmarkOptions.parse(SOURCE).config)
    parts = []
    for number in range(EVENTS // BATCH):
        rows = generator.batch(view, number * BATCH, (number + 1) * BATCH)
        times = pc.divide(rows.column("dateTime").cast(pa.int64()), 1000)
        kept = {name: rows.column(name) for name in columns}
        parts.append(pa.table({**kept, "t": times, "batch": pa.array([number] * rows.num_rows)}))
    return pa.concat_tables(parts)


def streamed(spark: SparkSession, query: str) -> DataFrame:
    register(spark)
    if query != "q8":
        bids = spark.readStream.format("nexmark").options(**SOURCE, view="bid").load()
        return queries.OVER_BIDS[query](bids.withWatermark("dateTime", DELAY))
    events = spark.readStream.format("nexmark").options(**SOURCE, view="all").load()
    persons, auctions = (
        events.where(f"event_type = {kind}").select(f"{name}.*").withWatermark("dateTime", DELAY)
        for kind, name in enumerate(("person", "auction"))
    )
    return queries.q8(persons, auctions)


def run(df: DataFrame, checkpoint: Path) -> tuple[Rows, Any]:
    """All rows that reach the sink, times in milliseconds; and the query."""
    got: Rows = []

    def collect(batch: DataFrame, _: int) -> None:
        got.extend(tuple(batch_row) for batch_row in _in_ms(batch).collect())

    writer = df.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(got), query


def _in_ms(rows: DataFrame) -> DataFrame:
    columns = ((f"`{name}`", kind) for name, kind in rows.dtypes)
    return rows.selectExpr(
        *(f"unix_millis({name})" if kind == "timestamp" else name for name, kind in columns)
    )


@pytest.mark.parametrize("query", queries.NAMES)
def test_rows_are_those_of_a_batch_computation(
    spark: SparkSession, oracle: Oracle, tmp_path: Path, query: str
) -> None:
    expected = oracle.rows(query)
    assert expected
    assert run(streamed(spark, query), tmp_path)[0] == expected


def test_late_bids_are_dropped_and_counted(spark: SparkSession, oracle: Oracle, tmp_path: Path) -> None:
    assert oracle.late_bids() > 100
    _, query = run(streamed(spark, "q7"), tmp_path)
    assert sum(batch.late_rows for batch in hr.progress(query)["parts"]) == oracle.late_bids()


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


def said(rows: Rows, *columns: int) -> list[list[str]]:
    return sorted([str(row[column]) for column in columns] for row in rows)


@pytest.mark.parametrize("query", ["q5", "q5_append"])
def test_q5_gives_what_others_expect(bids: DataFrame, tmp_path: Path, query: str) -> None:
    rows, _ = run(queries.OVER_BIDS[query](bids), tmp_path / "ck")
    assert said(rows, 1, 2) == expected("q5")


def test_q7_gives_what_others_expect(bids: DataFrame, tmp_path: Path) -> None:
    rows, _ = run(_written(queries.q7(bids), "dateTime"), tmp_path / "ck")
    assert said(rows, 0, 2, 1, 3) == expected("q7")


def test_q8_gives_what_others_expect(spark: SparkSession, tmp_path: Path) -> None:
    table = partial(small, spark)
    persons = table(tmp_path / "person", "person", "id bigint, name string")
    auctions = table(tmp_path / "auction", "auction", "seller bigint")
    rows, _ = run(_written(queries.q8(persons, auctions), "start"), tmp_path / "ck")
    assert said(rows, 0, 1, 2) == expected("q8")


def _written(rows: DataFrame, column: str) -> DataFrame:
    """Times as the expected rows write them: without the point where there is no fraction."""
    return rows.withColumn(column, rows[column].cast("string"))
