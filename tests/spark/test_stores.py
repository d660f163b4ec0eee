"""Protects the stores that a user may name in a running query: the same rows come out, hosts may die, what
cannot be is refused before anything runs, and `hr.explain` says what was chosen."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from streaming_case import Case

import headrace as hr
from headrace.errors import QueryError
from headrace.spark.build.explain import explained

pytestmark = pytest.mark.spark


def sums(case: Case, store: str) -> DataFrame:
    rows = hr.stream(case.source()).withWatermark("ts", "0 seconds").store(store)
    kept = rows.groupBy("user", hr.tumbling("10 seconds")).agg(n=hr.count(), total=hr.sum("amount"))
    return kept.select("user", "n", "total")


def lists(case: Case, store: str) -> DataFrame:
    rows = hr.stream(case.source()).withWatermark("ts", "0 seconds")
    kept = rows.groupBy("user", hr.session("5 seconds")).store(store)
    return kept.agg(all=hr.collect_list("amount"), n=hr.count()).select("user", "all", "n")


def test_files_of_another_store_are_refused(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    case.run(sums(case, "rocksdb"))
    case.feed(("a", 2, 1.0))
    assert "the store was rocksdb, is now rmw" in case.refusal(sums(case, "auto"))


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
def test_a_named_store_outlives_its_host(case: Case, store: str) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0))
    case.feed(("a", 3, 4.0), ("a", 11, 1.0))
    assert case.run(sums(case, store)) == [(1, "a", 2, 5.0), (1, "b", 1, 2.0)]
    case.kill_hosts()
    case.feed(("a", 2, 9.0), ("a", 12, 1.0), ("b", 30, 1.0))
    assert case.run(sums(case, store)) == [(2, "a", 2, 2.0)]


def test_kept_rows_of_sessions_in_rocksdb(case: Case) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0))
    case.feed(("a", 4, 4.0))
    assert case.run(lists(case, "rocksdb")) == []
    case.kill_hosts()
    case.feed(("a", 3, 2.0), ("b", 30, 1.0))
    assert case.run(lists(case, "rocksdb")) == [(2, "a", [1.0, 2.0, 4.0], 3), (2, "b", [2.0], 1)]


def test_explain_tells_each_operator_its_store_and_why(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    first, second = sums(case, "auto"), lists(case, "memory")
    assert explained(first).splitlines()[:4] == [
        "aggregate-1",
        "  keys    user",
        "  window  tumbling, 10 s",
        "  store   rmw: each row changes one state row of its key and slice (point update)",
    ]
    assert "sessions with a gap of 5 s" in explained(second)
    assert "memory: chosen by .store('memory')" in explained(second)
    assert "no Headrace operator" in explained(case.source())


def test_what_cannot_be_is_refused_with_what_can(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    with pytest.raises(QueryError, match=r"aar store cannot hold(.|\n)*auto, rmw, memory, rocksdb"):
        sums(case, "aar")
    case.spark.conf.set("spark.headrace.store", "range")
    try:
        with pytest.raises(QueryError, match=r"spark.headrace.store=range(.|\n)*auto, aur"):
            lists(case, "auto")
    finally:
        case.spark.conf.unset("spark.headrace.store")
