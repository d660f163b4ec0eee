"""Protects a change of the number of partitions in Spark queries: up and down, by both bridges and with
both formats of Spark's checkpoint, results are those of Spark itself, and state stays readable."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from streaming_case import Case, Rows

import headrace as hr
import headrace.inspect
from headrace.spark.build.recipe import session_options

CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
NUMBERS = (3, 5, 2, 8, 1)


def feed(case: Case, draw: random.Random, number: int) -> None:
    case.feed(*(_event(draw, number) for _ in range(60)))


def _event(draw: random.Random, number: int) -> tuple[str, int, float]:
    return f"u{draw.randint(0, 30)}", 20 * number + draw.randint(-15, 20), float(draw.randint(0, 9))


def set_numbers(case: Case, partitions: int, bridge: str) -> None:
    case.spark.conf.set("spark.headrace.partitions", str(partitions))
    case.spark.conf.set("spark.headrace.bridge", bridge)


@pytest.mark.parametrize(("bridge", "version"), [("jvm", "1"), ("jvm", "2"), ("python", "1")])
def test_totals_across_changes(case: Case, bridge: str, version: str) -> None:
    case.spark.conf.set(CHECKPOINT_FORMAT, version)
    got: Rows = []
    draw = random.Random(3)
    for number, partitions in enumerate(NUMBERS):
        set_numbers(case, partitions, bridge)
        for _ in range(2):
            feed(case, draw, number)
        got += case.run(case.totals())
    assert newest(got) == expected(case)
    with headrace.inspect.open(str(case.checkpoint)) as state:
        table = state.table("totals").to_pandas()
        assert {row.user: (row.n, row.total) for row in table.itertuples()} == expected(case)
        assert state.versions("totals") == list(range(2 * len(NUMBERS)))
        early = {user for number, user, *_ in got if number < 2}
        assert state.table("totals", version=1).count() == len(early)


def newest(rows: Rows) -> dict[str, tuple[int, float]]:
    return {user: (n, total) for _, user, n, total in sorted(rows)}


def expected(case: Case) -> dict[str, tuple[int, float]]:
    rows = case.spark.read.parquet(str(case.inputs)).groupBy("user")
    totals = rows.agg(F.count("*"), F.sum("amount")).collect()
    return {user: (n, total) for user, n, total in totals}


@pytest.mark.parametrize("bridge", ["jvm", "python"])
def test_sessions_span_the_change(case: Case, bridge: str) -> None:
    def sessions(rows: DataFrame) -> DataFrame:
        marked = rows.withWatermark("ts", "10 seconds")
        grouped = hr.stream(marked).name("sessions").groupBy("user", hr.session("8 seconds"))
        return grouped.agg(values=hr.collect_list("amount"), n=hr.count())

    got: Rows = []
    draw = random.Random(5)
    for number, partitions in enumerate(NUMBERS):
        set_numbers(case, partitions, bridge)
        feed(case, draw, number)
        got += case.run(sessions(case.source()))
    set_numbers(case, 3, bridge)
    plain = Case(case.spark, case.inputs, case.checkpoint.with_name("plain"))
    assert counted(got) == counted(plain.run(sessions(plain.source())))
    assert len(got) > 20


def counted(rows: Rows) -> list[str]:
    return sorted(repr((user, window, sorted(values), n)) for _, user, window, values, n in rows)


def test_a_change_that_did_not_commit_leaves_the_old_number(case: Case, tmp_path: Path) -> None:
    set_numbers(case, 3, "auto")
    feed(case, random.Random(1), 0)
    case.run(case.totals())
    set_numbers(case, 6, "auto")
    feed(case, random.Random(2), 1)

    def fail(batch: DataFrame, number: int) -> None:
        batch.collect()
        raise RuntimeError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        case.run(case.totals(), fail)
    set_numbers(case, 3, "auto")
    assert newest(case.run(case.totals())).items() <= expected(case).items()
    set_numbers(case, 2, "auto")
    feed(case, random.Random(3), 2)
    assert newest(case.run(case.totals())).items() <= expected(case).items()


def test_rocksdb_is_refused_by_name(case: Case, spark: SparkSession) -> None:
    spark.conf.set("spark.headrace.store", "rocksdb")
    feed(case, random.Random(1), 0)
    case.run(case.totals())
    files = case.files()
    set_numbers(case, 4, "auto")
    feed(case, random.Random(2), 1)
    assert "rocksdb store" in case.refusal(case.totals())
    assert case.files() == files


def test_a_default_number_leaves_the_number_of_the_state(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine with another number of cores."""
    set_numbers(case, 3, "jvm")
    feed(case, random.Random(1), 0)
    case.run(case.totals())
    defaults = replace(session_options(case.spark), partitions=7, rescales=False)
    monkeypatch.setattr("headrace.spark.build.recipe.session_options", lambda _: defaults)
    for number in (1, 2):
        feed(case, random.Random(number), number)
    got = newest(case.run(case.totals()))
    assert got
    assert got.items() <= expected(case).items()
    with headrace.inspect.open(str(case.checkpoint)) as state:
        assert state.record("totals").spec.partitions == 3
