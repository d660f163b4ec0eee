"""Protects written state: a query goes on from it, the version before stays, and whatever does not fit is
refused by name before any version changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from streaming_case import Case
from test_state_tables import plain, state

import headrace as hr
from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import stored_record
from headrace.inspect.doctor import examine
from headrace.inspect.state import State

pytestmark = pytest.mark.spark


def write(case: Case, df: DataFrame, operator: str = "totals", mode: str = "append") -> None:
    writer = df.write.format("headrace").option("checkpoint", str(case.checkpoint))
    writer.option("operator", operator).mode(mode).save()


def refusal(case: Case, df: DataFrame, operator: str = "totals", mode: str = "append") -> str:
    before, logs = case.files(), sorted(path.name for path in (case.checkpoint / "commits").iterdir())
    with pytest.raises(PySparkException) as refused:
        write(case, df, operator, mode)
    assert case.files() == before
    assert sorted(path.name for path in (case.checkpoint / "commits").iterdir()) == logs
    return str(refused.value)


def rows_of(case: Case, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
    return case.spark.createDataFrame(rows, schema)


def fed(case: Case) -> Case:
    case.feed(("a", 0, 1.0), ("b", 1, 2.0), (None, 2, 4.0))
    case.run(case.totals())
    return case


@pytest.mark.parametrize("format_version", ["1", "2"])
def test_a_query_goes_on_from_what_was_written(case: Case, format_version: str) -> None:
    name = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    provider = "spark.sql.streaming.stateStore.providerClass"
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    before = case.spark.conf.get(provider)
    case.spark.conf.set(name, format_version)
    case.spark.conf.set(provider, rocksdb)
    try:
        fed(case)
        write(case, rows_of(case, [("a", 10, 100.0), ("new", 5, 0.5)], "user string, n long, total double"))
        written = [(None, 1, 4.0), ("a", 10, 100.0), ("b", 1, 2.0), ("new", 5, 0.5)]
        assert plain(state(case, operator="totals")) == sorted(written, key=repr)
        assert plain(state(case, operator="totals", versionAsOf=0))[0] == ("a", 1, 1.0)
        case.feed(("a", 9, 1.0), ("b", 9, 1.0), ("new", 9, 1.0))
        assert case.run(case.totals()) == [(2, "a", 11, 101.0), (2, "b", 2, 3.0), (2, "new", 6, 1.5)]
        with State(case.checkpoint) as opened:
            assert examine(opened).is_healthy
            assert opened.versions("totals") == [0, 1, 2]
    finally:
        case.spark.conf.set(provider, before)
        case.spark.conf.unset(name)


def test_overwrite_leaves_nothing_of_before(case: Case) -> None:
    fed(case)
    write(case, rows_of(case, [("z", 1, 1.0)], "user string, n long, total double"), mode="overwrite")
    assert plain(state(case, operator="totals")) == [("z", 1, 1.0)]
    case.feed(("a", 9, 1.0), ("z", 9, 1.0))
    assert case.run(case.totals()) == [(2, "a", 1, 1.0), (2, "z", 2, 2.0)]


def test_initial_state_of_a_new_query(case: Case) -> None:
    case.inputs.mkdir()
    past = rows_of(case, [("a", 1000, 5.0), ("b", 7, 0.5)], "user string, n long, total double")
    hr.write_state(past, str(case.checkpoint), "totals", stream=case.totals())
    assert plain(state(case, operator="totals")) == [("a", 1000, 5.0), ("b", 7, 0.5)]
    case.feed(("a", 0, 1.0), ("c", 0, 1.0))
    assert case.run(case.totals()) == [(0, "a", 1001, 6.0), (0, "c", 1, 1.0)]
    case.kill_hosts()
    case.feed(("b", 1, 1.0))
    assert case.run(case.totals()) == [(1, "b", 8, 1.5)]


def sums(case: Case, emit: Any, window: Any = None) -> DataFrame:
    rows = hr.stream(case.source()).withWatermark("ts", "0 seconds").name("sums")
    groups = rows.groupBy("user", window or hr.tumbling("10 seconds"))
    return groups.agg(emit=emit, n=hr.count(), mean=hr.avg("amount"))


@pytest.mark.parametrize("emit", ["final", "changes"])
def test_windows_are_replaced_one_by_one(case: Case, emit: str) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 3.0), ("a", 11, 5.0))
    case.run(sums(case, emit))
    case.feed(("b", 12, 3.0))
    case.run(sums(case, emit))
    open_rows = state(case, operator="sums", accumulators="true").where(
        "window.start = timestamp_seconds(10)"
    )
    changed = open_rows.where("user = 'a'").withColumn("sum(amount)", F.lit(100.0))
    write(case, changed, "sums")
    case.feed(("a", 13, 50.0), ("z", 31, 0.0))
    means = {row[1]: row[4] for row in case.run(sums(case, emit)) if row[2].start.second == 10}
    assert means["a"] == 75.0
    if emit == "final":
        assert means["b"] == 3.0


def test_rows_are_added_where_rows_are_kept(case: Case) -> None:
    def medians() -> DataFrame:
        rows = hr.stream(case.source()).withWatermark("ts", "0 seconds").name("medians")
        return rows.groupBy("user", hr.tumbling("10 seconds")).agg(m=hr.median("amount"))

    case.feed(("a", 11, 1.0), ("b", 12, 2.0))
    case.run(medians())
    more = state(case, operator="medians").where("user = 'a'").withColumn("amount", F.lit(9.0))
    write(case, more, "medians")
    case.feed(("a", 13, 2.0), ("z", 31, 0.0))
    assert {(row[1], row[3]) for row in case.run(medians())} == {("a", 2.0), ("b", 2.0)}


REFUSED: dict[str, tuple[str, str, Callable[[DataFrame], DataFrame]]] = {
    "missing": ("column total is missing", "totals", lambda df: df.drop("total")),
    "unknown": (
        "column more is not part of the state",
        "totals",
        lambda df: df.withColumn("more", F.lit(1)),
    ),
    "type": ("column n is string", "totals", lambda df: df.withColumn("n", F.lit("x"))),
    "twice": ("in more than one row", "totals", lambda df: df.union(df)),
    "operator": ("did you mean totals", "total", lambda df: df),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(copy: Case, name: str) -> None:
    message, operator, change = REFUSED[name]
    assert message in refusal(copy, change(state(copy, operator="totals")), operator)


def test_derived_results_cannot_be_written(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    case.run(sums(case, "changes"))
    assert "mean cannot be taken apart" in refusal(case, state(case, operator="sums"), "sums")


def test_closed_windows_are_refused(case: Case) -> None:
    case.feed(("a", 1, 1.0), ("a", 31, 1.0))
    case.run(sums(case, "final"))
    table = state(case, operator="sums", accumulators="true")
    window = F.struct(
        F.timestamp_seconds(F.lit(0)).alias("start"), F.timestamp_seconds(F.lit(10)).alias("end")
    )
    message = refusal(case, table.withColumn("window", window), "sums")
    assert "windows that the watermark closed" in message


def test_a_running_query_is_refused(case: Case) -> None:
    fed(case)
    df = state(case, operator="totals")
    rows = case.spark.createDataFrame(df.collect(), df.schema)
    writer = case.totals().writeStream.option("checkpointLocation", str(case.checkpoint))
    query = writer.foreachBatch(lambda batch, number: None).start()
    try:
        assert "is running" in refusal(case, rows)
    finally:
        query.stop()


def test_a_batch_that_is_planned_is_somebodys(copy: Case) -> None:
    offsets = copy.checkpoint / "offsets"
    (offsets / "3").write_bytes((offsets / "2").read_bytes())
    assert "stopped in the middle of batch 3" in refusal(copy, state(copy, operator="totals"))


def test_a_missing_version_is_refused(copy: Case) -> None:
    table = state(copy, operator="totals")
    rows = copy.spark.createDataFrame(table.collect(), table.schema)
    for manifest in copy.state.glob("*/totals/p0001/manifests/v000000000002-*"):
        manifest.unlink()
    assert "version 2 is not there" in refusal(copy, rows)


def test_stores_that_cannot_be_written_are_named(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    rows = hr.stream(case.source()).withWatermark("ts", "1 minute")
    case.run(rows.name("visits").groupBy("user", hr.session("1 minute")).agg(n=hr.count()))
    assert "windows of each key's own" in refusal(case, state(case, operator="visits"), "visits")


def test_a_crash_before_the_commit_entry_leaves_the_query_as_it_was(copy: Case) -> None:
    """Spark runs the batch that the write had planned as if the write had never been."""
    table = state(copy, operator="totals").withColumn("n", F.lit(1000).cast("long"))
    write(copy, table)
    (copy.checkpoint / "commits" / "3").unlink()
    got = copy.run(copy.totals())
    assert [(row[0], row[1], row[2]) for row in got if row[1] == "a"] == [(4, "a", 4)]
    record = stored_record(LocalFiles(f"file:{copy.checkpoint}"), "totals")
    assert record is not None
    assert record.begun[-1] == 4
