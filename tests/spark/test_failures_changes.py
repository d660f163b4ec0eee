"""Protects the state against its query: a restart that differs is refused by name, before anything is
written, and the original query still goes on afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from streaming_case import FOURTH, Case

import headrace as hr
from headrace.errors import QueryError, SettingError

pytestmark = pytest.mark.spark


def grouped(case: Case, *keys: object) -> hr.GroupedStream:
    return hr.stream(case.source()).name("totals").groupBy(*keys)


def other_key(case: Case) -> DataFrame:
    return grouped(case, F.upper("user").alias("name")).agg(n=hr.count(), total=hr.sum("amount"))


def one_key_more(case: Case) -> DataFrame:
    return grouped(case, "user", "ts").agg(n=hr.count(), total=hr.sum("amount"))


def other_aggregate(case: Case) -> DataFrame:
    return grouped(case, "user").agg(n=hr.count(), total=hr.max("amount"))


def one_aggregate_less(case: Case) -> DataFrame:
    return grouped(case, "user").agg(n=hr.count())


def other_type(case: Case) -> DataFrame:
    rows = case.source().withColumn("amount", F.col("amount").cast("long"))
    return hr.stream(rows).name("totals").groupBy("user").agg(n=hr.count(), total=hr.sum("amount"))


def a_window(case: Case) -> DataFrame:
    rows = hr.stream(case.source()).withWatermark("ts", "1 second").name("totals")
    return rows.groupBy("user", hr.tumbling("10 seconds")).agg(n=hr.count(), total=hr.sum("amount"))


CHANGES = [
    (other_key, ["key", "name", "user"]),
    pytest.param(one_key_more, ["key", "ts"], marks=pytest.mark.long),
    pytest.param(other_aggregate, ["sum(amount)", "max(amount)"], marks=pytest.mark.long),
    pytest.param(one_aggregate_less, ["sum(amount)"], marks=pytest.mark.long),
    (other_type, ["sum(amount)", "int64"]),
    (a_window, ["window", "10 s"]),
]


@pytest.mark.parametrize(("change", "named"), CHANGES, ids=lambda part: getattr(part, "__name__", ""))
def test_a_changed_operator_is_refused_by_name(
    copy: Case, change: Callable[[Case], DataFrame], named: list[str]
) -> None:
    before = copy.files()
    refusal = copy.refusal(change(copy))
    assert "operator 'totals' is not the one that wrote its state" in refusal
    for part in [*named, "the state was not touched"]:
        assert part in refusal
    assert copy.files() == before
    assert copy.run(copy.totals()) == FOURTH


@pytest.fixture
def set_conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    def set_(name: str, value: str) -> None:
        before = spark.conf.get(name, None)
        spark.conf.set(name, value)
        undo.append((name, before))

    undo: list[tuple[str, str | None]] = []
    yield set_
    for name, before in reversed(undo):
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def test_another_state_location_is_refused(
    copy: Case, set_conf: Callable[[str, str], None], tmp_path: Path
) -> None:
    set_conf("spark.headrace.state.location", str(tmp_path / "elsewhere"))
    refusal = copy.refusal(copy.totals())
    assert f"the state of totals lies in {copy.state}" in refusal
    assert f"but the state location is {tmp_path / 'elsewhere'}" in refusal
    assert not (tmp_path / "elsewhere").exists()
    set_conf("spark.headrace.state.location", str(copy.state))
    assert copy.run(copy.totals()) == FOURTH


def test_a_state_location_that_cannot_be_written(
    case: Case, set_conf: Callable[[str, str], None], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a directory")
    set_conf("spark.headrace.state.location", str(tmp_path / "file" / "state"))
    case.feed(("a", 0, 1.0))
    refusal = case.refusal(case.totals())
    assert str(tmp_path / "file" / "state") in refusal
    assert "→" in refusal


def test_an_unknown_setting_is_refused(case: Case, set_conf: Callable[[str, str], None]) -> None:
    set_conf("spark.headrace.memroy", "1g")
    case.feed(("a", 0, 1.0))
    with pytest.raises(
        SettingError, match=r"spark\.headrace\.memroy is not a setting(?s:.*)spark\.headrace\.memory"
    ):
        case.totals()


def test_two_operators_of_one_name_are_refused(case: Case) -> None:
    case.feed(("a", 0, 1.0))
    chained = hr.stream(case.totals()).name("totals").groupBy("user")
    with pytest.raises(QueryError, match="totals"):
        chained.agg(n=hr.sum("n"))
    refusal = case.refusal(case.totals().union(case.totals()))
    assert "two operators of one query are named totals" in refusal
