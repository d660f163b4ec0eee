"""Protects state as a Spark table: names, types and values are those of Spark's own aggregates over the
same rows, at every version. Filters that are pushed down change nothing. A reader beside a running query
sees whole versions only."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from streaming_case import Case

import headrace as hr
import headrace.inspect
from headrace.inspect.changes import Changes
from headrace.spark.tables.options import TableOptions
from headrace.spark.tables.reader import StateReader
from headrace.store.rows.hashing import hashes_of, normalised

pytestmark = pytest.mark.spark


def state(case: Case, **options: Any) -> DataFrame:
    reader = case.spark.read.format("headrace").option("checkpoint", str(case.checkpoint))
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def plain(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


HASHED = {
    "bool": [True, False, None],
    "int8": [1, -1, None],
    "int16": [1, -300, None],
    "int32": [7, -(2**31), None],
    "int64": [7, -(2**63), None],
    "date": [0, 19000, None],
    "timestamp": [0, -1, None],
    "float": [1.5, -0.0, float("nan"), None],
    "double": [1.5, -0.0, float("nan"), None],
    "string": ["", "a", "é" * 5, "x" * 100, None],
    "binary": [b"", b"\x00\xff", b"y" * 33, None],
    "decimal(10,2)": [Decimal("1.25"), Decimal("-99999999.99"), None],
    "decimal(38,4)": [Decimal("1.25"), Decimal("-1e20"), Decimal("123456789012345678901234.5"), None],
}


@pytest.mark.parametrize("kind", HASHED)
def test_keys_hash_as_spark_hashes_them(spark: SparkSession, kind: str) -> None:
    from headrace.plan.types import arrow_type
    from headrace.spark.language.keys import flatten
    from headrace.spark.language.types import spark_type

    raw = pa.array(HASHED[kind], pa.int64()) if kind == "timestamp" else pa.array(HASHED[kind])
    array = raw.cast(pa.int32()).cast(arrow_type(kind)) if kind == "date" else raw.cast(arrow_type(kind))
    df = spark.createDataFrame(pa.table({"k": array, "row": pa.array(range(len(array)))}))
    (leaf,) = flatten(F.col("k").cast(spark_type(kind)), spark_type(kind), True, "k")
    wanted = [row[0] for row in df.orderBy("row").select(F.xxhash64(leaf.column, leaf.column)).collect()]
    column = normalised(array, kind)
    hashes = hashes_of([(column, kind), (column, kind)], len(array))
    assert hashes.view(np.int64).tolist() == wanted


def aggregates() -> dict[str, tuple[Any, Column]]:
    """Ours and Spark's own, by name."""
    return {
        "n": (hr.count(), F.count("*")),
        "total": (hr.sum("amount"), F.sum("amount")),
        "mean": (hr.avg("amount"), F.avg("amount")),
        "exact": (
            hr.avg(F.col("amount").cast("decimal(10,2)")),
            F.avg(F.col("amount").cast("decimal(10,2)")),
        ),
        "spread": (hr.stddev("amount"), F.stddev("amount")),
        "wide": (hr.var_pop("amount"), F.var_pop("amount")),
        "top": (hr.max("amount"), F.max("amount")),
        "least": (hr.min("user"), F.min("user")),
    }


def test_a_table_has_what_spark_would_compute_at_every_version(case: Case) -> None:
    case.inputs.mkdir()
    key = F.struct(F.col("user").alias("name"), F.length("user").alias("size")).alias("who")
    df = hr.stream(case.source()).name("totals").groupBy("user", key)
    query = df.agg(**{name: ours for name, (ours, _) in aggregates().items()})
    for number in range(3):
        case.feed(("ann", number, 0.25 * number), ("bob", number, 1.5), (None, number, float(number)))
        case.run(query)
    for version in range(3):
        files = [str(case.inputs / f"{number}.parquet") for number in range(version + 1)]
        rows = case.spark.read.parquet(*files).groupBy("user", key)
        expected = rows.agg(*(theirs.alias(name) for name, (_, theirs) in aggregates().items()))
        table = state(case, operator="totals", versionAsOf=version)
        assert [(f.name, f.dataType) for f in table.schema] == [
            (f.name, f.dataType) for f in expected.schema
        ]
        assert plain(table) == plain(expected)
        assert plain(state(case, operator="totals", asOfBatch=version)) == plain(expected)
    listed = state(case).collect()
    assert [(row.operator, row.versions, row.rows) for row in listed] == [("totals", [0, 1, 2], 3)]
    changes = state(case, operator="totals", changesFrom=1)
    assert {(row.change, row.user) for row in changes.collect()} == {
        ("update", "ann"),
        ("update", "bob"),
        ("update", None),
    }


def test_filters_are_pushed_down_and_change_nothing(case: Case) -> None:
    case.feed(*((f"user-{n % 7}", 7 * n, 1.0) for n in range(60)))
    rows = hr.stream(case.source()).withWatermark("ts", "1 minute").name("sums")
    case.run(rows.groupBy("user", hr.tumbling("1 minute")).agg(n=hr.count()))
    whole = state(case, operator="sums")
    minute = F.lit("1970-01-01 00:06:00").cast("timestamp")
    for wanted in (
        F.col("user") == "user-3",
        F.col("user").isin("user-1", "user-5", "nobody"),
        F.col("window.start") >= minute,
        (F.col("window.start") < minute) & (F.col("user") != "user-0"),
    ):
        everything = case.spark.createDataFrame(whole.collect(), whole.schema)
        assert plain(whole.where(wanted)) == plain(everything.where(wanted))
        assert whole.where(wanted).count() > 0


def test_a_lookup_reads_only_the_partition_of_its_key(case: Case) -> None:
    from pyspark.sql.datasource import EqualTo

    case.feed(("a", 0, 1.0), ("b", 1, 2.0), ("c", 2, 3.0))
    case.run(case.totals())
    reader = StateReader(TableOptions(str(case.checkpoint), "totals"))
    assert len(reader.partitions()) == 3
    reader.push([EqualTo(("user",), "a")])
    (only,) = reader.partitions()
    assert [row["n"] for batch in reader.read(only) for row in batch.to_pylist()] == [1]


def test_values_of_any_type_are_those_of_the_results(case: Case) -> None:
    case.feed(("ann", 1, 1.5), ("bob", 2, 2.5), (None, 3, 3.5))
    amount = F.col("amount")
    values = {
        "items": F.array(amount, F.lit(None), amount + 1),
        "texts": F.array(F.col("user"), F.lit(""), F.lit("é" * 40)),
        "flags": F.array(amount > 2, F.lit(None)),
        "bytes": F.array(*(F.lit(n).cast("tinyint") for n in range(70))),
        "days": F.array(F.lit("2024-02-29").cast("date"), F.lit(None)),
        "decimals": F.array(amount.cast("decimal(10,2)"), (-amount).cast("decimal(10,2)")),
        "wide": F.array((-amount).cast("decimal(38,4)"), F.lit("1e20").cast("decimal(38,4)")),
        "waits": F.array(F.expr("INTERVAL '1 02:03:04.5' DAY TO SECOND")),
        "entries": F.create_map(F.lit("at"), F.struct("amount", F.array("ts", F.lit(None)).alias("times"))),
        "nested": F.array(F.array(F.struct(F.col("user").alias("a"), F.lit(None).cast("int").alias("b")))),
    }
    rows = case.source().select("user", "amount", *(value.alias(name) for name, value in values.items()))
    newest = {name: hr.max_by(name, "amount") for name in values}
    results = hr.stream(rows).name("any").groupBy(F.array("user").alias("who")).agg(**newest)
    emitted = case.run(results)
    table = state(case, operator="any")
    assert [f.dataType.simpleString() for f in table.schema] == [
        f.dataType.simpleString() for f in results.schema
    ]
    assert plain(table) == [row[1:] for row in emitted]


def test_kept_rows_are_shown_as_they_are(case: Case) -> None:
    case.feed(("a", 1, 1.0), ("a", 2, 2.0), ("b", 3, 4.0))
    left = hr.stream(case.source()).withWatermark("ts", "1 minute")
    rows = left.name("medians").groupBy("user", hr.tumbling("1 minute")).agg(m=hr.median("amount"))
    case.run(rows)
    table = state(case, operator="medians")
    assert table.columns == ["user", "event_time", "amount"]
    assert [(row[0], row[2]) for row in plain(table)] == [("a", 1.0), ("a", 2.0), ("b", 4.0)]


def test_rows_of_a_join_name_their_side(case: Case) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0))
    left = hr.stream(case.source()).withWatermark("ts", "1 minute")
    prices = case.source().select("user", F.col("ts").alias("at"), F.col("amount").alias("price"))
    right = hr.stream(prices).withWatermark("at", "1 minute")
    case.run(left.name("both").join(right, "user", hr.tumbling("1 minute")))
    rows = state(case, operator="both").select("user", "side", "amount", "price")
    assert plain(rows) == [
        ("a", "left", 1.0, None),
        ("a", "right", None, 1.0),
        ("b", "left", 2.0, None),
        ("b", "right", None, 2.0),
    ]


def test_a_reader_beside_a_running_query_sees_whole_versions(case: Case) -> None:
    """Batch n adds one row per user, so a version n has n + 1 in every row and nothing in between."""
    users, seen, problems, done = (
        [f"user-{n}" for n in range(40)],
        set[int](),
        list[str](),
        threading.Event(),
    )

    def read() -> None:
        while not done.is_set():
            with headrace.inspect.open(case.checkpoint) as opened:
                try:
                    table = opened.table("totals")
                    rows = table.to_arrow().to_pylist()
                except hr.HeadraceError as error:
                    if "no version is committed" not in str(error) and "has no operator" not in str(error):
                        problems.append(str(error))
                    continue
                seen.add(table.version)
                if {(row["user"], row["n"]) for row in rows} != {(u, table.version + 1) for u in users}:
                    problems.append(f"version {table.version}: {rows[:3]}")

    case.feed(*((user, 0, 1.0) for user in users))
    writer = case.totals().writeStream.option("checkpointLocation", str(case.checkpoint))
    query = writer.foreachBatch(lambda batch, number: batch.collect() and None).start()
    query.processAllAvailable()
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, 25):
            case.feed(*((user, number, 1.0) for user in users))
            query.processAllAvailable()
    finally:
        done.set()
        reader.join()
        query.stop()
    assert problems == []
    assert len(seen) > 3


def test_what_is_wrong_is_named(case: Case, tmp_path: Path) -> None:
    case.feed(("a", 0, 1.0))
    case.run(case.totals())
    opened = headrace.inspect.open(case.checkpoint)
    with pytest.raises(hr.QueryError, match="did you mean totals"):
        opened.table("total")
    with pytest.raises(hr.HeadraceError, match="version 7 is not committed yet"):
        opened.table("totals", version=7)
    with pytest.raises(hr.QueryError, match="amount is not a key"):
        opened.table("totals", keys={"amount": 1})
    with pytest.raises(hr.QueryError, match="back in time"):
        opened.changes("totals", 1, 0)
    with pytest.raises(hr.HeadraceError, match="not the checkpoint of a streaming query"):
        headrace.inspect.open(tmp_path / "nothing")
    with pytest.raises(Exception, match="did you mean versionAsOf"):
        state(case, operator="totals", versionAs=0)
    assert isinstance(opened.changes("totals", 0, 0), Changes)
