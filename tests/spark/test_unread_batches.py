"""Protects: a foreachBatch function that leaves a batch unread never loses its rows without an error."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from streaming_case import Case

import headrace as hr

# The Python path and the JVM path notice it in different places.
UNREAD = (
    r"(batch {0} was left unread: its rows never reached operator totals"
    r"|batch {0} evaluated 0 of \d+ partitions of totals"
    r"|version {0} is missing from .*left that batch unread)"
)


@pytest.fixture(autouse=True, params=["python", "jvm"])
def bridge(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test on both paths."""
    before = spark.conf.get("spark.headrace.bridge")
    spark.conf.set("spark.headrace.bridge", request.param)
    yield
    spark.conf.set("spark.headrace.bridge", before)


def reading(*batches: int):  # type: ignore[no-untyped-def]
    """A sink that reads these batches and no others."""

    def sink(df: DataFrame, batch: int) -> None:
        if batch in batches:
            df.collect()

    return sink


def fed(case: Case, batches: int) -> Case:
    for number in range(batches):
        case.feed(("a", number, 1.0), ("b", number, 1.0))
    return case


def test_the_batch_after_an_unread_one_stops(case: Case) -> None:
    fed(case, 4)
    with pytest.raises(StreamingQueryException, match=UNREAD.format(1)):
        case.run(case.totals(), reading(0, 2, 3))


def test_an_unread_first_batch_stops_the_second(case: Case) -> None:
    fed(case, 2)
    with pytest.raises(StreamingQueryException, match=UNREAD.format(0)):
        case.run(case.totals(), reading(1))


def test_a_start_after_an_unread_last_batch_stops(case: Case) -> None:
    fed(case, 2)
    case.run(case.totals(), reading(0))
    fed(case, 1)
    assert re.search(UNREAD.format(1), case.refusal(case.totals()), re.DOTALL)


def test_a_run_that_reads_nothing_is_noticed_by_the_next(case: Case) -> None:
    fed(case, 1)
    case.run(case.totals(), reading(0))
    fed(case, 1)
    case.run(case.totals(), reading())
    fed(case, 1)
    assert re.search(UNREAD.format(1), case.refusal(case.totals()), re.DOTALL)


def test_batches_without_rows_for_an_operator_are_not_unread(case: Case, spark: SparkSession) -> None:
    """Spark leaves an operator out of the plan while its stream has nothing new, also over a restart."""
    fed(case, 1)
    other = Case(spark, case.inputs.parent / "other", case.checkpoint)

    def both() -> DataFrame:
        beside = hr.stream(other.source()).name("beside").groupBy("user").agg(n=hr.count())
        return case.totals().select("user", "n").union(beside)

    fed(other, 3)
    assert [row[0] for row in case.run(both())] == [0, 0, 0, 0, 1, 1, 2, 2]
    fed(other, 1)
    case.run(both())
    fed(case, 1)
    assert case.run(both()) == [(4, "a", 2), (4, "b", 2)]
