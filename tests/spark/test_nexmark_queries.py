"""Protects NEXMark's queries: their rows are those of a batch computation by another engine.

Events are out of order and partly late, in batches of any size. Over the small data set of others, the
queries give what the others expect.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import nexmark_oracle
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from flowkv_oracle import Oracle
from nexmark_oracle import Rows
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headrace.generators.nexmark import NexmarkConfig, NexmarkGenerator
from headrace.nexmark import joins, stateless
from headrace.nexmark.registry import QUERIES, Query
from headrace.nexmark.streams import KINDS, Streams, side_table, streams_of

pytestmark = pytest.mark.spark

DATA = Path(__file__).parents[1] / "data" / "oracles" / "nexmark"
LONG = pytest.mark.long
ALWAYS = {"q4", "q6", "q7", "q9", "q13", "q20"}  # one of each kind; the others with --all
STATELESS = ("q0", "q1", "q2", "q14", "q21", "q22")
COLUMNS = {  # of wide results, those that are compared
    "q9": ["auction", "bidder", "price", "dateTime", "itemName", "seller", "expires"],
    "q20": ["auction", "bidder", "price", "dateTime", "itemName", "auction_dateTime", "expires", "seller"],
    "q23": ["bidder", "name", "auction", "price", "bid_dateTime", "auction_id", "itemName"],
}


@pytest.fixture(scope="module", autouse=True)
def _eager(spark: SparkSession) -> Iterator[None]:
    """A window closes in the batch whose data passes it, as the oracle has it."""
    spark.conf.set("spark.headrace.timing", "eager")
    yield
    spark.conf.unset("spark.headrace.timing")


class Input:
    """Generated events in random batches, as files for Spark and as tables for the oracle."""

    def __init__(self, spark: SparkSession, folder: Path, events: int, batches: int, rate: int) -> None:
        draw = random.Random(events)
        cuts = sorted(draw.sample(range(1, events), batches - 1))
        self.bounds = list(zip([0, *cuts], [*cuts, events], strict=True))
        config = NexmarkConfig(
            rate=rate, out_of_order_group=500, late_probability=0.05, late_max_ms=20_000, seed=events
        )
        self.generator, self.folder = NexmarkGenerator(config), folder
        for number, (low, high) in enumerate(self.bounds):
            rows = pa.Table.from_batches(self.generator.batches("all", low, high))
            path = folder / f"{number:04}.parquet"
            pq.write_table(rows, path)
            os.utime(path, (1000 + number, 1000 + number))  # Spark takes files in the order of their times
        self.schema = spark.read.parquet(str(folder)).schema

    def streams(self, spark: SparkSession) -> Streams:
        reader = spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        side = str(self.folder / "_side")  # Spark takes no file from a folder of such a name
        return replace(streams_of(reader.parquet(str(self.folder))), side_path=side)

    def table(self, kind: str) -> pa.Table:
        """All rows of a kind, times in milliseconds, with the batch that brings them."""
        parts = []
        for number, (low, high) in enumerate(self.bounds):
            rows = pa.Table.from_batches(self.generator.batches(kind, low, high))
            parts.append(rows.append_column("batch", pa.array([number] * len(rows), pa.int64())))
        table = pa.concat_tables(parts)
        for name, field in zip(table.column_names, table.schema, strict=True):
            if pa.types.is_timestamp(field.type):
                at = table.column_names.index(name)
                ms = pc.divide(table[name].cast(pa.int64()), 1000)
                table = table.set_column(at, "t" if name == "dateTime" else name, ms)
        return table

    def tables(self) -> dict[str, pa.Table]:
        return {kind: self.table(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def small_input(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Input:
    return Input(spark, tmp_path_factory.mktemp("events"), events=6_000, batches=4, rate=150)


@pytest.fixture(scope="module")
def large_input(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Input:
    return Input(spark, tmp_path_factory.mktemp("many"), events=200_000, batches=9, rate=2_500)


def ran(df: DataFrame, checkpoint: Path) -> list[list[tuple[Any, ...]]]:
    """The rows of every batch, times in milliseconds."""
    batches: list[list[tuple[Any, ...]]] = []

    def collect(batch: DataFrame, _: int) -> None:
        batches.append([tuple(row) for row in in_ms(batch).collect()])

    writer = df.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return batches


def in_ms(rows: DataFrame) -> DataFrame:
    columns = ((f"`{name}`", kind) for name, kind in rows.dtypes)
    return rows.selectExpr(
        *(f"unix_millis({name}) AS {name}" if kind == "timestamp" else name for name, kind in columns)
    )


def result(query: Query, df: DataFrame, batches: list[Rows]) -> Rows:
    """The result after the last batch: changes replace rows of their key, a changelog is applied."""
    flat = [row for batch in batches for row in batch]
    if query.shape == "rows":
        return flat
    places = [df.columns.index(name) for name in query.keys]
    table: dict[Any, tuple[Any, ...]] = {}
    for row in flat:
        key = tuple(row[place] for place in places)
        if query.shape == "changelog":
            kind, row = row[-1], row[:-1]
            if kind in ("update_before", "delete"):
                assert table.pop(key) == row
                continue
            assert key not in table
        table[key] = row
    return list(table.values())


def plain(rows: Rows) -> Rows:
    """Decimals in thousandths, and averages without their last digits."""

    def value(one: Any) -> Any:
        if isinstance(one, Decimal):
            return int(one * 1000)
        return round(one, 3) if isinstance(one, float) else one

    return sorted((tuple(map(value, row)) for row in rows), key=repr)


def check(spark: SparkSession, given: Input, name: str, checkpoint: Path) -> None:
    query = QUERIES[name]
    df = query.over(given.streams(spark))
    df = df.select(*COLUMNS.get(name, df.columns))
    rows = result(query, df, ran(df, checkpoint))
    if name == "q12":
        rows = [(sum(row[1] for row in rows),)]
    expected = expected_rows(name, given)
    assert plain(rows) == plain(expected)
    assert len(expected) > (0 if name in ("q12", "q15") else 4)


def expected_rows(name: str, given: Input) -> Rows:
    if name != "q11":
        return nexmark_oracle.expected(name, given.tables())
    bids = given.table("bid").select(["auction", "bidder", "price", "t", "batch"])
    return [(row[0], row[3], row[1], row[2]) for row in Oracle(bids, bids, bids).rows("q11")]


STATEFUL = [name for name in QUERIES if name not in STATELESS]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ALWAYS else [LONG]) for name in STATEFUL]
)
def test_rows_are_those_of_a_batch_computation(
    spark: SparkSession, small_input: Input, tmp_path: Path, name: str
) -> None:
    check(spark, small_input, name, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", STATEFUL)
def test_rows_of_200_thousand_events(
    spark: SparkSession, large_input: Input, tmp_path: Path, name: str
) -> None:
    check(spark, large_input, name, tmp_path)


@pytest.mark.parametrize("name", STATELESS)
def test_queries_without_state(spark: SparkSession, small_input: Input, name: str) -> None:
    events = spark.read.schema(small_input.schema).parquet(str(small_input.folder))
    rows = [tuple(row) for row in in_ms(QUERIES[name].over(streams_of(events))).collect()]
    expected = nexmark_oracle.expected(name, small_input.tables())
    assert plain(rows) == plain(expected)
    assert len(expected) > 4


# ── a small data set of others ───────────────────────────────────────────────────────────────

SCHEMAS = {
    "person": "id bigint, name string, email_address string, credit_card string, city string, "
    "state string, date_time timestamp, extra string",
    "auction": "id bigint, item_name string, description string, initial_bid bigint, reserve bigint, "
    "date_time timestamp, expires timestamp, seller bigint, category bigint, extra string",
    "bid": "auction bigint, bidder bigint, price bigint, channel string, url string, date_time timestamp, "
    "extra string",
}
RENAMED = {
    "date_time": "dateTime",
    "email_address": "emailAddress",
    "credit_card": "creditCard",
    "item_name": "itemName",
    "initial_bid": "initialBid",
}
FAR = {"string": "", "bigint": -1, "timestamp": "2015-07-15 01:00:00"}


def table_of_others(spark: SparkSession, folder: Path, kind: str) -> DataFrame:
    """A table of the data set as a stream, and then one row an hour later that closes all windows."""
    (folder / kind).mkdir(parents=True, exist_ok=True)
    fields = [column.split() for column in SCHEMAS[kind].split(", ")]
    closing = json.dumps({name: FAR[of] for name, of in fields})
    for number, text in enumerate(((DATA / f"{kind}.jsonl").read_text(), closing)):
        path = folder / kind / f"{number}.json"
        path.write_text(text)
        os.utime(path, (1000 + number, 1000 + number))
    reader = spark.readStream.schema(SCHEMAS[kind]).option("maxFilesPerTrigger", 1)
    rows = reader.json(str(folder / kind)).withColumnsRenamed(RENAMED)
    return rows.withWatermark("dateTime", "4 seconds")


def of_others(spark: SparkSession, folder: Path) -> Streams:
    persons, auctions, bids = (table_of_others(spark, folder, kind) for kind in KINDS)
    return Streams(persons, auctions, bids, bids, side_table(spark))


def written(name: str) -> list[str]:
    """The expected rows, with one blank between columns, and times as Spark writes them."""
    lines = (DATA / f"{name}.txt").read_text().splitlines()
    return sorted(re.sub(r"(:\d\d\.\d*?)0+( |$)", r"\1\2", " ".join(line.split())) for line in lines)


def texts(df: DataFrame, checkpoint: Path, query: Query) -> list[str]:
    """The rows of the small data set as the expected ones are written."""
    rows = result(query, df, ran_as_text(df, checkpoint))
    lines = [" ".join(" ".join(map(str, row)).split()) for row in rows]
    return sorted(line for line in lines if "-1" not in line.split() and "-1.0" not in line.split())


def ran_as_text(df: DataFrame, checkpoint: Path) -> list[Rows]:
    as_text = df.selectExpr(*(f"CAST(`{name}` AS STRING) AS `{name}`" for name in df.columns))
    return ran(as_text, checkpoint)


@pytest.mark.parametrize("name", ["q3", "q4", "q5", "q7", "q8", "q9"])
def test_others_expect_the_same(spark: SparkSession, tmp_path: Path, name: str) -> None:
    streams, query = of_others(spark, tmp_path / "in"), QUERIES[name]
    df = query.over(streams)
    if name == "q3":
        df = joins.q3(streams.auctions, streams.persons, states=("or", "id", "ca"))
    if name == "q4":
        df = df.selectExpr("category", "CAST(average AS DECIMAL(20, 2)) AS average")
    if name == "q7":
        df = df.drop("extra")
    if name == "q9":
        df = df.selectExpr(
            "auction", "itemName", "description", "initialBid", "reserve", "auction_dateTime", "expires",
            "seller", "category", "auction AS bid_auction", "bidder", "price", "dateTime",
        )  # fmt: skip
    rows = texts(df, tmp_path / "ck", query)
    expected = written(name)
    if name == "q4":
        expected = [f"{key} {Decimal(value):.2f}" for key, value in (line.split() for line in expected)]
    assert rows == expected


@pytest.mark.parametrize("name", ["q0", "q1", "q2"])
def test_others_expect_the_same_without_state(spark: SparkSession, name: str) -> None:
    bids = spark.read.schema(SCHEMAS["bid"]).json(str(DATA / "bid.jsonl")).withColumnsRenamed(RENAMED)
    df = QUERIES[name].build(bids)
    if name == "q2":
        df = stateless.q2(bids, ids=(1007, 1020, 2001, 2019, 2087))
    df = df.drop("extra")
    as_text = df.selectExpr(*(f"CAST(`{column}` AS STRING)" for column in df.columns))
    assert sorted(" ".join(row) for row in as_text.collect()) == written(name)


def test_q12_has_the_time_of_its_batch_in_a_replay(
    spark: SparkSession, small_input: Input, tmp_path: Path
) -> None:
    """The sink fails once it has the rows of the first batch; the batch runs again later."""
    df = QUERIES["q12"].over(small_input.streams(spark))
    seen: list[Rows] = []

    def fail(batch: DataFrame, _: int) -> None:
        seen.append([tuple(row) for row in in_ms(batch).collect()])
        raise RuntimeError("the sink fails")

    writer = df.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(ran(df, tmp_path)[0]) == sorted(seen[0])
    assert seen[0]
