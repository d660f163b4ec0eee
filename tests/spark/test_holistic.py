"""Protects holistic aggregates and functions of the user over windows, in real queries of several batches:
results are those of Spark's own batch aggregates, and of pandas, over the same rows."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.spark.driver.driver import coordinator_for

pytestmark = pytest.mark.spark

BATCHES, ROWS, SPAN_S = 6, 120, 20
END = (BATCHES + 6) * SPAN_S  # a row that closes every window
SCHEMA = "user string, ts timestamp, amount double, cents decimal(9,2), day date, page string, n int"


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file per batch, each half a minute wide and out of order inside; the last row closes all."""
    folder, rng = tmp_path_factory.mktemp("events"), np.random.default_rng(5)
    for batch in range(BATCHES):
        at = rng.integers(batch * SPAN_S, (batch + 1) * SPAN_S, ROWS).tolist()
        rows = [_row(rng, second) for second in at]
        if batch == BATCHES - 1:
            rows.append({**_row(rng, END), "user": "end"})
        path = folder / f"{batch}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=ARROW), path)
        os.utime(path, (1000 + batch, 1000 + batch))
    return folder


ARROW = pa.schema(
    {
        "user": pa.string(), "ts": pa.timestamp("us", tz="UTC"), "amount": pa.float64(),
        "cents": pa.decimal128(9, 2), "day": pa.date32(), "page": pa.string(), "n": pa.int32(),
    }
)  # fmt: skip


def _row(rng: np.random.Generator, second: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    return {
        "user": maybe(f"user-{rng.integers(0, 4)}"),
        "ts": dt.datetime.fromtimestamp(second, dt.UTC) + dt.timedelta(milliseconds=int(rng.integers(999))),
        "amount": maybe(float(rng.choice([0.0, -1.5, 2.25, 7.0, float("nan"), 1e9]))),
        "cents": maybe(Decimal(int(rng.integers(-999, 999))) / 100),
        "day": maybe(dt.date(2024, 1, 1) + dt.timedelta(days=int(rng.integers(9)))),
        "page": maybe("/" + "x" * int(rng.integers(0, 5))),
        "n": maybe(int(rng.integers(-5, 5))),
    }


def stream(spark: SparkSession, events: Path) -> hr.Stream:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return hr.stream(reader.parquet(str(events))).withWatermark("ts", "0 seconds")


def run(df: DataFrame, checkpoint: Path) -> list[Row]:
    got: list[Row] = []
    writer = df.writeStream.foreachBatch(lambda rows, _: got.extend(rows.collect()))
    writer.option("checkpointLocation", str(checkpoint)).trigger(
        availableNow=True
    ).start().awaitTermination()
    return got


HOLISTIC: dict[str, tuple[Callable[[], Any], str]] = {
    "median": (lambda: hr.median("amount"), "median(amount)"),
    "cents_median": (lambda: hr.median("cents"), "median(cents)"),
    "p": (lambda: hr.percentile("n", 0.3), "percentile(n, 0.3)"),
    "ps": (lambda: hr.percentile("n", [0.0, 0.77, 1.0]), "percentile(n, array(0.0, 0.77, 1.0))"),
    "near": (lambda: hr.approx_percentile("cents", 0.4), "percentile_approx(cents, 0.4)"),
    "nears": (
        lambda: hr.approx_percentile("day", [0.1, 0.9], 5000),
        "percentile_approx(day, array(0.1, 0.9), 5000)",
    ),
    "mode": (lambda: hr.mode("page"), "mode(page, true)"),
    "modes": (lambda: hr.mode("n"), "mode(n, true)"),
    "set": (lambda: hr.collect_set("page"), "sort_array(collect_set(page))"),
    "days": (lambda: hr.collect_set("day"), "sort_array(collect_set(day))"),
    "list": (
        lambda: hr.collect_list("n"),
        "transform(filter(sort_array(collect_list(struct(ts, n))), x -> x.n is not null), x -> x.n)",
    ),
    "top": (lambda: hr.top("cents", 3), "slice(sort_array(collect_list(cents), false), 1, 3)"),
    "by": (
        lambda: hr.top("page", 2, by="n"),
        "transform(slice(sort_array(filter(collect_list(struct(n, ts, page)), x -> x.n is not null), "
        "false), 1, 2), x -> x.page)",
    ),
    "ties": (
        lambda: hr.top("page", 1, by="n", ties=True),
        "transform(filter(sort_array(collect_list(struct(n, ts, page)), false), x -> x.n = max(n)), "
        "x -> x.page)",
    ),
    "rows": (lambda: hr.count(), "count(*)"),
    "total": (lambda: hr.sum("cents"), "sum(cents)"),
    "low": (lambda: hr.min("page"), "min(page)"),
}
WINDOWS = {
    "tumbling": (lambda: hr.tumbling("25 seconds"), lambda: F.window("ts", "25 seconds")),
    "sliding": (
        lambda: hr.sliding("30 seconds", "10 seconds"),
        lambda: F.window("ts", "30 seconds", "10 seconds"),
    ),
}


def by_group(rows: list[Row]) -> dict[str, str]:
    """Every value as text, by key, window and column; a group that comes twice is an error of its own."""
    values = {f"{row['user']} {row['window']['start']} {n}": repr(row[n]) for row in rows for n in HOLISTIC}
    assert len(values) == len(rows) * len(HOLISTIC)
    return values


@pytest.mark.parametrize(
    ("window", "store"),
    [("tumbling", "aar"), ("sliding", "aar"), pytest.param("sliding", "range", marks=pytest.mark.long)],
)
def test_results_are_those_of_spark(
    spark: SparkSession, events: Path, tmp_path: Path, window: str, store: Any
) -> None:
    mine, sparks = WINDOWS[window]
    aggregates = {name: made() for name, (made, _) in HOLISTIC.items()}
    result = stream(spark, events).store(store).groupBy("user", mine()).agg(**aggregates)
    got = run(result, tmp_path / "checkpoint")
    rows = spark.read.schema(SCHEMA).parquet(str(events)).where("user is null or user <> 'end'")
    expected = rows.groupBy("user", sparks()).agg(
        *(F.expr(value).alias(name) for name, (_, value) in HOLISTIC.items())
    )
    assert [f.dataType.simpleString() for f in result.schema] == [
        f.dataType.simpleString() for f in expected.schema
    ]
    assert len(got) > 20
    mine_by, sparks_by = by_group(got), by_group(expected.collect())
    assert mine_by.keys() == sparks_by.keys()
    differ = {at: (value, sparks_by[at]) for at, value in mine_by.items() if value != sparks_by[at]}
    assert differ == {}


def test_kept_rows_survive_hosts_that_are_killed(spark: SparkSession, events: Path, tmp_path: Path) -> None:
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    got: list[Row] = []
    for start in range(0, BATCHES, 2):
        for batch in (start, start + 1):
            shutil.copy2(events / f"{batch}.parquet", arriving)
        window = hr.sliding("30 seconds", "10 seconds", lateness="5 seconds")
        df = stream(spark, arriving).groupBy("user", window).agg(list=hr.collect_list("n"), rows=hr.count())
        got += run(df, tmp_path / "checkpoint")
        for host in coordinator_for(spark).hosts().values():
            os.kill(host.pid, signal.SIGKILL)
    rows = spark.read.schema(SCHEMA).parquet(str(events)).where("user is null or user <> 'end'")
    expected = rows.groupBy("user", F.window("ts", "30 seconds", "10 seconds"))
    wanted = expected.agg(F.expr(HOLISTIC["list"][1]).alias("list"), F.count("*").alias("rows")).collect()
    assert sorted(map(repr, got)) == sorted(map(repr, wanted))


def spread_of() -> Callable[..., pa.Table]:
    """A function that travels to the workers by value: they cannot import the tests."""

    def spread(key: Any, table: pa.Table) -> pa.Table:
        user, (start, _) = key
        cents = [float(value) for value in table["cents"].to_pylist() if value is not None]
        times = table["ts"].to_pylist()
        assert times == sorted(times)
        return pa.table(
            {
                "total": [sum(cents)],
                "user": [user.as_py()],
                "start": pa.array([start.as_py()], pa.timestamp("us", tz="UTC")),
                "rows": [table.num_rows],
            }
        )

    return spread


def test_a_function_sees_each_key_and_window_once(
    spark: SparkSession, events: Path, tmp_path: Path
) -> None:
    groups = stream(spark, events).name("spread").groupBy("user", hr.sliding("30 seconds", "10 seconds"))
    df = groups.applyInArrow(spread_of(), "user string, start timestamp, total double, rows bigint")
    got = run(df, tmp_path / "checkpoint")
    rows = spark.read.schema(SCHEMA).parquet(str(events)).where("user is null or user <> 'end'")
    grouped = rows.groupBy("user", F.window("ts", "30 seconds", "10 seconds").alias("w"))
    total = F.coalesce(F.sum("cents").cast("double"), F.lit(0.0)).alias("total")
    want = grouped.agg(total, F.count("*").alias("rows")).select("user", "w.start", "total", "rows")

    def rounded(answers: list[Row]) -> list[Any]:
        return sorted(((r[0], r[1], round(r[2], 6), r[3]) for r in answers), key=repr)

    assert rounded(got) == rounded(want.collect())


@pytest.mark.long
def test_pandas_sees_what_pyspark_would_show(spark: SparkSession, events: Path, tmp_path: Path) -> None:
    def ranked(frame: Any) -> Any:
        frame = frame.assign(place=frame.amount.rank(method="first"))
        return frame[["user", "ts", "day", "n", "place"]]

    schema = "user string, ts timestamp, day date, n double, place double"
    groups = stream(spark, events).groupBy("user", hr.tumbling("25 seconds"))
    got = run(groups.applyInPandas(ranked, schema), tmp_path / "checkpoint")
    rows = spark.read.schema(SCHEMA).parquet(str(events)).where("user is null or user <> 'end'")

    def ordered(frame: Any) -> Any:
        return ranked(frame.sort_values("ts", kind="stable"))

    want = rows.groupBy("user", F.window("ts", "25 seconds")).applyInPandas(ordered, schema).collect()
    same = [sorted(((r[0], r[1], r[2], r[3]) for r in answers), key=repr) for answers in (got, want)]
    assert repr(same[0]) == repr(same[1])
    assert len(got) == BATCHES * ROWS


def test_errors_of_a_function_name_operator_key_and_window(
    spark: SparkSession, events: Path, tmp_path: Path
) -> None:
    def fails(table: pa.Table) -> pa.Table:
        raise LookupError("no such thing")

    def wrong(table: pa.Table) -> pa.Table:
        return table.select(["user"])

    groups = stream(spark, events).name("spread").groupBy("user", hr.tumbling("25 seconds"))
    for number, (func, message) in enumerate(
        [(fails, "LookupError: no such thing"), (wrong, "columns are user")]
    ):
        with pytest.raises(StreamingQueryException) as refused:
            run(groups.applyInArrow(func, "total double"), tmp_path / f"checkpoint-{number}")
        text = str(refused.value)
        assert message in text
        assert "operator spread, key (user=" in text
        assert "window 1970-01-01" in text


def test_what_cannot_run_is_refused_when_it_is_built(spark: SparkSession, events: Path) -> None:
    rows = stream(spark, events)
    window = hr.tumbling("25 seconds")
    with pytest.raises(hr.QueryError, match="there is no window"):
        rows.groupBy("user").agg(m=hr.median("n"))
    with pytest.raises(hr.QueryError, match='emit="changes" is not possible'):
        rows.groupBy("user", window).agg(emit="changes", m=hr.median("n"))
    with pytest.raises(hr.QueryError, match="Spark has none of day"):
        rows.groupBy("user", window).agg(m=hr.approx_percentile("ts", 0.5), n=hr.percentile("day", 0.5))
    with pytest.raises(hr.QueryError, match="there is no window"):
        rows.groupBy("user").applyInArrow(spread_of(), "total double")
    with pytest.raises(hr.QueryError, match="needs 3 arguments"):
        rows.groupBy("user", window).applyInArrow(lambda a, b, c: a, "total double")
    with pytest.raises(hr.QueryError, match="is not a schema"):
        rows.groupBy("user", window).applyInPandas(spread_of(), 7)  # type: ignore[arg-type]
    for wrong in (lambda: hr.percentile("n", 1.5), lambda: hr.top("n", 0), lambda: hr.percentile("n", [])):
        with pytest.raises(hr.QueryError):
            wrong()
