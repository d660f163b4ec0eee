"""Protects the operator in Spark's plan: the same rows on both bridges, Spark's own progress shows it,
windows close without new input, and versions are in Spark's commit log where its format keeps ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from streaming_case import Case, Rows

import headrace as hr
from headrace.spark.build.explain import explained

pytestmark = pytest.mark.spark

OWN_METRICS = {
    "headraceRowsIn",
    "headraceRowsOut",
    "headraceStateBytes",
    "headraceWrittenBytes",
    "headraceSealMs",
    "headracePublishMs",
    "headraceWaitPreviousMs",
}
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """`spark.headrace.<name>` for a while; a name with dots is Spark's own."""
    named = {name if "." in name else f"spark.headrace.{name}": value for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in named}
    for name, value in named.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture(autouse=True)
def _jvm(spark: SparkSession) -> Iterator[None]:
    with settings(spark, bridge="jvm"):
        yield


def windows(case: Case, window: Any, store: str = "auto", **aggregates: Any) -> DataFrame:
    rows = hr.stream(case.source()).withWatermark("ts", "3 seconds").name("sums").store(store)
    return rows.groupBy("user", window).agg(**(aggregates or {"n": hr.count(), "s": hr.sum("amount")}))


def picked(case: Case) -> DataFrame:
    def columns(table: Any) -> Any:
        return table.select(["user", "amount"])

    rows = hr.stream(case.source()).withWatermark("ts", "3 seconds")
    groups = rows.groupBy("user", hr.tumbling("10 seconds"))
    return groups.applyInArrow(columns, "user string, amount double")


CASES: dict[str, Callable[[Case], DataFrame]] = {
    "running": lambda case: case.totals(),
    "tumbling": lambda case: windows(case, hr.tumbling("10 seconds")),
    "sliding": lambda case: windows(case, hr.sliding("10 seconds", "5 seconds")),
    "session": lambda case: windows(case, hr.session("5 seconds")),
    "memory": lambda case: windows(case, hr.tumbling("10 seconds"), "memory"),
    "rocksdb": lambda case: windows(case, hr.tumbling("10 seconds"), "rocksdb"),
    "aar": lambda case: windows(case, hr.tumbling("10 seconds"), m=hr.median("amount")),
    "aur": lambda case: windows(case, hr.session("5 seconds"), m=hr.collect_list("amount")),
    "no key": lambda case: hr.stream(case.source()).groupBy().agg(n=hr.count()),
    "function": picked,
}


def fed(case: Case) -> Case:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0), (None, 3, 0.5))
    case.feed(("a", 9, 4.0), ("a", 16, 1.0), ("b", 4, 8.0))
    case.feed(("a", 2, 9.0), ("c", 40, 1.0))
    case.feed(("b", 41, 2.0), ("c", 90, 3.0))
    return case


@pytest.mark.parametrize("name", CASES)
def test_both_bridges_give_the_same_rows(case: Case, tmp_path: Path, name: str) -> None:
    rows: dict[str, Rows] = {}
    fed(case)
    for bridge in ("python", "jvm"):
        side = Case(case.spark, case.inputs, tmp_path / bridge)
        with settings(case.spark, bridge=bridge, timing="eager"):
            rows[bridge] = side.run(CASES[name](side))
    assert rows["jvm"] == rows["python"]
    assert rows["jvm"]


def progress_of(case: Case, df: DataFrame) -> list[dict[str, Any]]:
    """Spark's progress of every batch."""
    writer = df.writeStream.format("noop").option("checkpointLocation", str(case.checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [json.loads(one.json) for one in query.recentProgress]


def test_sparks_progress_shows_the_operator(case: Case) -> None:
    operators = [
        one["stateOperators"] for one in progress_of(fed(case), windows(case, hr.tumbling("10 seconds")))
    ]
    assert [[one["operatorName"] for one in batch] for batch in operators] == [["headrace:sums"]] * 4
    (last,) = operators[-1]
    assert [batch[0]["numRowsDroppedByWatermark"] for batch in operators] == [0, 0, 1, 0]
    assert [batch[0]["numRowsUpdated"] for batch in operators] == [3, 3, 1, 2]
    assert [batch[0]["numRowsTotal"] for batch in operators] == [3, 1, 1, 1]
    assert [batch[0]["numStateStoreInstances"] for batch in operators] == [3] * 4
    assert last["memoryUsedBytes"] > 0
    assert any(batch[0]["commitTimeMs"] > 0 for batch in operators)
    assert last["customMetrics"]["headraceRowsIn"] == 2
    assert set(last["customMetrics"]) == OWN_METRICS


def test_windows_close_without_new_input(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    case.feed(("a", 50, 1.0))
    with settings(case.spark, timing="spark"):
        rows = case.run(windows(case, hr.tumbling("10 seconds"), n=hr.count()).select("user", "n"))
    assert rows == [(2, "a", 1)], "two batches have input; the third, which closes the window, has none"


def test_without_empty_batches_windows_wait_for_input(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    case.feed(("a", 50, 1.0))
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    with settings(case.spark, timing="spark", **{name: "false"}):
        assert case.run(windows(case, hr.tumbling("10 seconds"))) == []


def test_sparks_commit_log_has_the_versions(case: Case) -> None:
    fed(case)
    log = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
    with settings(case.spark, **log, **{"spark.sql.streaming.stateStore.providerClass": ROCKSDB}):
        first = case.run(case.totals())
        case.kill_hosts()
        case.feed(("a", 95, 1.0), ("b", 96, 1.0))
        second = case.run(case.totals())
    assert [row[0] for row in second] == [4, 4]
    assert (3, "b", 3, 12.0) in first
    assert {row[1]: row[2] for row in second} == {"a": 5, "b": 4}
    newest = (case.checkpoint / "commits" / "4").read_text().splitlines()[-1]
    ids = json.loads(newest)["stateUniqueIds"]["0"]
    assert [one[0] for one in ids] == ["v4-r2"] * 3


def test_explain_names_bridge_and_timing(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    text = explained(windows(case, hr.tumbling("10 seconds")))
    assert "  runs    in the JVM" in text
    assert "  timing  eager: one watermark feeds the query" in text
    below = case.source().withWatermark("ts", "1 second").dropDuplicates(["user", "ts"])
    mixed = hr.stream(below).groupBy("user", hr.tumbling("10 seconds", on="ts")).agg(n=hr.count())
    assert "  timing  spark: the query has stateful operators of Spark: Deduplicate" in explained(mixed)


def test_eager_beside_sparks_operators_is_refused(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    below = case.source().withWatermark("ts", "1 second").dropDuplicates(["user", "ts"])
    with settings(case.spark, timing="eager"):
        mixed = hr.stream(below).groupBy("user", hr.tumbling("10 seconds", on="ts")).agg(n=hr.count())
        assert "timing=eager beside stateful operators of Spark" in case.refusal(mixed)


def test_sparks_operators_above_see_the_window(case: Case, tmp_path: Path) -> None:
    fed(case)
    sums = case.source().withWatermark("ts", "3 seconds").groupBy("user", F.window("ts", "10 seconds"))
    rows = [
        Case(case.spark, case.inputs, tmp_path / side).run(wider(below))
        for side, below in (
            ("ours", windows(case, hr.tumbling("10 seconds"), n=hr.count())),
            ("spark", sums.agg(F.count("*").alias("n"))),
        )
    ]
    assert rows[0] == rows[1]
    assert rows[0]


def wider(below: DataFrame) -> DataFrame:
    """Spark's own windows over the windows of an operator below."""
    groups = below.groupBy(F.window(F.window_time("window"), "20 seconds").alias("w"))
    return groups.agg(F.sum("n").alias("n"))


def test_an_operator_used_twice_is_refused(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    totals = case.totals()
    assert "used twice in one query" in case.refusal(totals.union(totals))


def test_an_operator_built_twice_joins_itself(case: Case, tmp_path: Path) -> None:
    """Spark's stream-stream join over the results of two operators that differ in their names."""
    fed(case)

    def ours(name: str) -> DataFrame:
        grouped = hr.stream(rows()).name(name).groupBy("user", hr.tumbling("10 seconds", on="ts"))
        return grouped.agg(n=hr.count())

    def sparks() -> DataFrame:
        return rows().groupBy("user", F.window("ts", "10 seconds")).agg(F.count("*").alias("n"))

    def rows() -> DataFrame:
        return case.source().withWatermark("ts", "3 seconds")

    joined = [
        Case(case.spark, case.inputs, tmp_path / side).run(self_join(*views))
        for side, views in (("ours", (ours("one"), ours("two"))), ("spark", (sparks(), sparks())))
    ]
    assert joined[0] == joined[1]
    assert joined[0]


def self_join(left: DataFrame, right: DataFrame) -> DataFrame:
    """Pairs of users in one window."""
    sides = [
        side.select(F.col("window"), F.col("user").alias(f"user_{name}"), F.col("n").alias(f"n_{name}"))
        for name, side in (("left", left), ("right", right))
    ]
    return sides[0].join(sides[1], ["window"])
