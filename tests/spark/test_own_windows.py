"""Protects windows of each key's own in a query: sessions with a gap per row are Spark's, batch by batch.
Windows by count, up to a marker and by a function are those of DuckDB over all rows."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from batch_files import Rows, cut, run, stream_of, write_batches
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace as hr
import headrace.inspect
from headrace.errors import QueryError

pytestmark = pytest.mark.spark

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
DELAY = "90 seconds"
GAPS = [None, "5 seconds", "20 seconds", "0 seconds", "2 minutes"]
BRIDGES = pytest.mark.parametrize("bridge", ["auto", "python"])


def clicks(seed: int, count: int = 240, late: int = 60) -> pa.Table:
    """Rows out of order by less than `late` seconds; the last one passes everything."""
    draw = random.Random(seed)
    times = [START + dt.timedelta(seconds=at * 3 + draw.randrange(late)) for at in range(count - 1)]
    times.append(START + dt.timedelta(days=2))
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "k": pa.array([draw.randrange(4) for _ in range(count)], pa.int64()),
            "gap": pa.array([*(draw.choice(GAPS) for _ in range(count - 1)), "5 seconds"]),
            "done": pa.array([draw.choice([None, False, False, False, True]) for _ in range(count)]),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def feed(
    spark: SparkSession, folder: Path, seed: int, ends: list[int], **options: int
) -> tuple[pa.Table, DataFrame]:
    table = clicks(seed, **options)
    write_batches(folder / "in", cut(table, ends))
    return table, stream_of(spark, folder / "in")


def flat(batches: list[Rows]) -> list[str]:
    return sorted(repr(row) for rows in batches for row in rows)


def in_duckdb(table: pa.Table, sql: str) -> list[str]:
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        base.register("clicks", table)
        return sorted(repr(tuple(row)) for row in base.execute(sql).fetchall())


def seconds(stamp: Any) -> Any:
    return F.unix_micros(stamp)


@BRIDGES
def test_sessions_with_a_gap_per_row_are_sparks(spark: SparkSession, tmp_path: Path, bridge: str) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    late, delay = 60, DELAY
    if (
        bridge == "auto"
    ):  # Spark drops late rows by the watermark of the batch before; so does the JVM operator
        spark.conf.set("spark.headrace.timing", "spark")
        late, delay = 200, "30 seconds"
    _, stream = feed(spark, tmp_path, 5, [1, 30, 31, 90, 170, 239], late=late)
    shown = [seconds("window.start").alias("start"), seconds("window.end").alias("end")]
    ours = run(
        hr.stream(stream)
        .withWatermark("ts", delay)
        .groupBy("k", hr.session(F.col("gap")))
        .agg(n=hr.count(), ids=hr.collect_list("id"), last=hr.max("id"))
        .select("k", *shown, "n", F.array_sort("ids"), "last"),
        tmp_path / "ours",
    )
    theirs = run(
        stream.withWatermark("ts", delay)
        .groupBy("k", F.session_window("ts", F.col("gap")).alias("window"))
        .agg(F.count("*").alias("n"), F.collect_list("id").alias("ids"), F.max("id").alias("last"))
        .select("k", *shown, "n", F.array_sort("ids"), "last"),
        tmp_path / "theirs",
    )
    assert flat(ours) == flat(theirs)
    assert len(flat(ours)) > 10


@BRIDGES
def test_windows_by_count_and_up_to_a_marker(spark: SparkSession, tmp_path: Path, bridge: str) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    table, stream = feed(spark, tmp_path, 6, [2, 60, 61, 200, 239])
    rows = hr.stream(stream).withWatermark("ts", DELAY)
    aggregates = {"n": hr.count(), "total": hr.sum("id"), "middle": hr.median("id")}
    shown = ["k", seconds("window.start"), seconds("window.end") - 1, "n", "total", "middle"]
    counted = run(rows.groupBy("k", hr.rows(10, 4)).agg(**aggregates).select(*shown), tmp_path / "n")
    columns = "epoch_us(min(ts)), epoch_us(max(ts)), count(*), sum(id)::BIGINT, median(id)"
    number = "row_number() OVER (PARTITION BY k ORDER BY ts, id) - 1 AS place"
    past = "ts < TIMESTAMPTZ '2030-01-02 00:00:00+00'"
    assert flat(counted) == in_duckdb(
        table,
        f"SELECT k, {columns} FROM (SELECT *, {number} FROM clicks WHERE {past}) "
        "JOIN range(0, 400, 4) AS w(first) ON place >= first AND place < first + 10 "
        "GROUP BY k, first HAVING count(*) = 10",
    )
    silent = run(
        rows.groupBy("k", hr.ended_by("done", gap="15 seconds"))
        .agg(**aggregates)
        .select("k", seconds("window.start"), seconds("window.end"), "n", "total", "middle"),
        tmp_path / "s",
    )
    ordered = "PARTITION BY k ORDER BY ts, coalesce(done, false), id"
    apart = "epoch_us(ts) - epoch_us(lag(ts) OVER w) > 15000000 OR lag(coalesce(done, false)) OVER w"
    assert flat(silent) == in_duckdb(
        table,
        "SELECT k, epoch_us(min(ts)), "
        "epoch_us(max(ts)) + CASE WHEN bool_or(done) THEN 1 ELSE 15000000 END, "
        "count(*), sum(id)::BIGINT, median(id) "
        f"FROM (SELECT *, sum(begins::INT) OVER ({ordered}) AS session "
        f"FROM (SELECT *, coalesce({apart}, true) AS begins FROM clicks WHERE {past} "
        f"WINDOW w AS ({ordered}))) GROUP BY k, session",
    )
    marked = run(rows.groupBy("k", hr.ended_by("done")).agg(**aggregates).select(*shown), tmp_path / "m")
    order = "ORDER BY ts, coalesce(done, false), id"
    rows_before = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    marks = f"sum(coalesce(done, false)::INT) OVER (PARTITION BY k {order} {rows_before})"
    before = f"coalesce({marks}, 0) AS session"
    assert flat(marked) == in_duckdb(
        table,
        f"SELECT k, {columns} FROM (SELECT *, {before} FROM clicks WHERE {past}) "
        "GROUP BY k, session HAVING bool_or(done)",
    )
    unended = f"sum(coalesce(done, false)::INT) OVER (PARTITION BY k {order} ROWS BETWEEN CURRENT ROW AND "
    assert in_state(tmp_path / "m") == in_duckdb(
        table,
        f"SELECT k, epoch_us(ts), id FROM (SELECT *, {unended} UNBOUNDED FOLLOWING) AS ends FROM clicks "
        f"WHERE {past}) WHERE ends = 0 UNION ALL SELECT k, epoch_us(ts), id FROM clicks WHERE NOT ({past})",
    )


def in_state(checkpoint: Path) -> list[str]:
    """Key, event time and id of the rows that the only operator of a query has in state."""
    with headrace.inspect.open(checkpoint) as state:
        (operator,) = state.operators
        table = state.table(operator).to_arrow()
    columns = (table["k"], table["event_time"].cast(pa.int64()), table["id"])
    return sorted(repr(row) for row in zip(*(column.to_pylist() for column in columns), strict=True))


def half_hours() -> Any:
    """Windows of half an hour, and for key 1 of two minutes every minute; key 3 has none."""

    def assign(times: pa.Array, keys: pa.Array) -> pa.Array:
        rows = []
        for time, key in zip(times.cast(pa.int64()).to_pylist(), keys.to_pylist(), strict=True):
            if key == 3:
                rows.append(None)
                continue
            width, slide = (120, 60) if key == 1 else (1800, 1800)
            start = time - time % (slide * 1_000_000)
            starts = range(start, time - width * 1_000_000, -slide * 1_000_000)
            rows.append([{"start": at, "end": at + width * 1_000_000} for at in starts])
        instant = pa.timestamp("us", tz="UTC")
        return pa.array(rows, pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))).cast(
            pa.list_(pa.struct([("start", instant), ("end", instant)]))
        )

    return assign  # not by name: workers do not have this module


@BRIDGES
def test_windows_of_a_function(spark: SparkSession, tmp_path: Path, bridge: str) -> None:
    spark.conf.set("spark.headrace.bridge", bridge)
    table, stream = feed(spark, tmp_path, 7, [2, 60, 61, 200, 239])
    rows = hr.stream(stream).withWatermark("ts", DELAY)
    window = hr.custom_window(half_hours(), "k")
    shown = [seconds("window.start"), seconds("window.end")]
    folded = run(
        rows.groupBy("k", window).agg(n=hr.count(), total=hr.sum("id")).select("k", *shown, "n", "total"),
        tmp_path / "f",
    )
    kept = run(
        rows.groupBy("k", window).agg(n=hr.count(), middle=hr.median("id"), first=hr.first("id"))
        .select("k", *shown, "n", "middle", "first"),
        tmp_path / "h",
    )  # fmt: skip

    def of_group(key: Any, rows: pa.Table) -> pa.Table:
        (start, end) = key[-1]
        columns = {"k": [key[0].as_py()], "start": [start.value], "end": [end.value], "n": [rows.num_rows]}
        return pa.table(columns | {"total": [pc.sum(rows["id"]).as_py()]})

    schema = "k long, start long, end long, n long, total long"
    applied = run(rows.groupBy("k", window).applyInArrow(of_group, schema), tmp_path / "a")
    windows = (
        "SELECT *, unnest(CASE WHEN k = 1 THEN "
        "[{'s': epoch_us(ts) // 60000000 * 60000000, 'w': 120000000}, "
        "{'s': epoch_us(ts) // 60000000 * 60000000 - 60000000, 'w': 120000000}] "
        "ELSE [{'s': epoch_us(ts) // 1800000000 * 1800000000, 'w': 1800000000}] END) AS b FROM clicks "
        "WHERE k <> 3 AND ts < TIMESTAMPTZ '2030-01-02 00:00:00+00'"
    )
    groups = f"FROM ({windows}) GROUP BY k, b.s, b.w"
    expected = in_duckdb(table, f"SELECT k, b.s, b.s + b.w, count(*), sum(id)::BIGINT {groups}")
    assert flat(folded) == expected
    assert flat(applied) == expected
    assert flat(kept) == in_duckdb(
        table, f"SELECT k, b.s, b.s + b.w, count(*), median(id), arg_min(id, (ts, id)) {groups}"
    )


def test_what_cannot_be_a_window_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    _, stream = feed(spark, tmp_path, 8, [])
    plain, rows = hr.stream(stream), hr.stream(stream).withWatermark("ts", DELAY)
    with pytest.raises(QueryError, match="leave rows between them out"):
        rows.groupBy("k", hr.rows(3, 4)).agg(n=hr.count())
    with pytest.raises(QueryError, match="emitted when they are complete"):
        rows.groupBy("k", hr.rows(3)).agg(emit="changes", n=hr.count())
    with pytest.raises(QueryError, match="never last"):
        rows.groupBy("k", hr.ended_by("done", gap="0 seconds")).agg(n=hr.count())
    with pytest.raises(QueryError, match="is a bigint"):
        rows.groupBy("k", hr.ended_by("id")).agg(n=hr.count())
    with pytest.raises(QueryError, match="the gap of a session, id, is a bigint"):
        rows.groupBy("k", hr.session(F.col("id"))).agg(n=hr.count())
    with pytest.raises(QueryError, match="watermark"):
        plain.groupBy("k", hr.custom_window(half_hours(), "k", on="ts")).agg(n=hr.count(), emit="changes")
    with pytest.raises(QueryError, match="one gap"):
        rows.join(rows, on="k", window=hr.session(F.col("gap")))
    with pytest.raises(QueryError, match="takes no window of the kind Counted"):
        rows.join(rows, on="k", window=hr.rows(3))


def test_a_window_that_misses_its_row_is_named(spark: SparkSession, tmp_path: Path) -> None:
    _, stream = feed(spark, tmp_path, 9, [])
    rows = hr.stream(stream).withWatermark("ts", DELAY)
    with pytest.raises(Exception, match="a window contains its row"):
        run(rows.groupBy(hr.custom_window(lambda times: (times, times))).agg(n=hr.count()), tmp_path / "ck")
