"""Protects sessions in a running query: they merge across batches and restarts of the host, come once when
they are over, come again within their lateness, and late rows are dropped."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from streaming_case import Case

import headrace as hr
from headrace.errors import QueryError

pytestmark = pytest.mark.spark


def sessions(case: Case, lateness: str = "0 seconds") -> DataFrame:
    rows = hr.stream(case.source()).withWatermark("ts", "5 seconds")
    counted = rows.groupBy("user", hr.session("10 seconds", lateness=lateness)).agg(
        n=hr.count(), total=hr.sum("amount")
    )
    return counted.select("user", "window.start", "window.end", "n", "total")


def at(second: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(second, dt.UTC).replace(tzinfo=None)


def test_sessions_outlive_hosts_and_merge(case: Case) -> None:
    case.feed(("a", 100, 1.0), ("b", 102, 1.0), ("a", 114, 2.0))
    case.feed(("c", 114, 1.0))
    assert case.run(sessions(case)) == []
    case.kill_hosts()
    case.feed(("a", 107, 4.0), ("b", 99, 9.0), ("c", 140, 1.0))  # joins a's two sessions; b's row is late
    assert case.run(sessions(case)) == [
        (2, "a", at(100), at(124), 3, 7.0),
        (2, "b", at(102), at(112), 1, 1.0),
        (2, "c", at(114), at(124), 1, 1.0),
    ]


def test_a_session_comes_again_within_its_lateness(case: Case) -> None:
    case.feed(("a", 0, 1.0), ("b", 20, 1.0))
    case.feed(("a", 3, 2.0), ("b", 21, 1.0))
    case.feed(("b", 60, 1.0))
    case.feed(("a", 4, 2.0), ("b", 61, 1.0))
    assert case.run(sessions(case, "10 seconds")) == [
        (0, "a", at(0), at(10), 1, 1.0),
        (1, "a", at(0), at(13), 2, 3.0),
        (2, "b", at(20), at(31), 2, 2.0),
    ]


@pytest.mark.parametrize(("expecting", "instances"), [(False, 1), (True, 1), (False, 3)])
def test_kept_rows_of_a_session_outlive_hosts(case: Case, expecting: bool, instances: int) -> None:
    """The second run has one instance again."""
    ends = F.col("ts") + F.expr("interval 1 minute") if expecting else None

    def medians() -> DataFrame:
        rows = hr.stream(case.source()).withWatermark("ts", "5 seconds")
        kept = rows.groupBy("user", hr.session("10 seconds", ends=ends)).agg(
            middle=hr.median("amount"), all=hr.collect_list("amount"), n=hr.count()
        )
        return kept.select("user", "window.start", "window.end", "middle", "all", "n")

    case.feed(("a", 100, 1.0), ("b", 102, 1.0), ("a", 114, 2.0))
    case.feed(("c", 114, 1.0))
    case.spark.conf.set("spark.headrace.instances", str(instances))
    try:
        assert case.run(medians()) == []
    finally:
        case.spark.conf.unset("spark.headrace.instances")
    case.kill_hosts()
    case.feed(("a", 107, 4.0), ("b", 99, 9.0), ("c", 140, 1.0))
    assert case.run(medians()) == [
        (2, "a", at(100), at(124), 2.0, [1.0, 4.0, 2.0], 3),
        (2, "b", at(102), at(112), 1.0, [1.0], 1),
        (2, "c", at(114), at(124), 1.0, [1.0], 1),
    ]


def test_what_is_expected_of_a_session_is_checked(case: Case) -> None:
    case.feed(("a", 100, 1.0))
    rows = hr.stream(case.source()).withWatermark("ts", "5 seconds")
    with pytest.raises(QueryError, match="is a double"):
        rows.groupBy("user", hr.session("10 seconds", ends="amount")).agg(all=hr.collect_list("amount"))
    with pytest.raises(QueryError, match="keep no rows"):
        rows.groupBy("user", hr.session("10 seconds", ends="ts")).agg(n=hr.count())
    with pytest.raises(QueryError, match="takes no ends="):
        rows.join(rows, on="user", window=hr.session("10 seconds", ends="ts"))


def test_a_function_over_sessions_with_an_expected_end(case: Case) -> None:
    def total(rows: pa.Table) -> pa.Table:
        names = ",".join(rows.column_names)
        return pa.table({"user": ["a"], "total": [pc.sum(rows["amount"]).as_py()], "columns": [names]})

    case.feed(("a", 100, 1.0), ("a", 103, 2.0))
    case.feed(("b", 140, 1.0))
    rows = hr.stream(case.source()).withWatermark("ts", "5 seconds")
    grouped = rows.groupBy("user", hr.session("10 seconds", ends="ts"))
    totals = grouped.applyInArrow(total, "user string, total double, columns string")
    assert case.run(totals) == [(1, "a", 3.0, "user,ts,amount")]


def test_a_join_over_sessions(case: Case) -> None:
    case.feed(("a", 100, 1.0), ("a", 108, -2.0), ("b", 100, -1.0), ("c", 101, 1.0))
    case.feed(("a", 115, 3.0), ("b", 111, 5.0))
    case.feed(("z", 200, 1.0), ("z", 200, -1.0))
    ins = hr.stream(case.source().where("amount > 0")).withWatermark("ts", "30 seconds")
    negative = case.source().where("amount < 0").withColumnsRenamed({"amount": "out", "ts": "at"})
    outs = hr.stream(negative).withWatermark("at", "30 seconds")
    joined = ins.join(outs, on="user", window=hr.session("10 seconds"), how="left")
    came = case.run(joined.select("user", "window.start", "window.end", "amount", "out"))
    assert sorted((row[1:] for row in came), key=repr) == [
        ("a", at(100), at(125), 1.0, -2.0),
        ("a", at(100), at(125), 3.0, -2.0),
        ("b", at(111), at(121), 5.0, None),
        ("c", at(101), at(111), 1.0, None),
    ]
