"""Protects sessions in a running query: they merge across batches and restarts of the host, come once when
they are over, come again within their lateness, and late rows are dropped."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql import DataFrame
from streaming_case import Case

import headrace as hr

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
