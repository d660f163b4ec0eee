"""Protects versions in Spark's commit log (checkpoint format 2): the ids of all partitions are there,
and the next batch starts from it, after two evaluations of a batch, asynchronous commits and lost hosts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from streaming_case import Case
from test_bridge import ROCKSDB, settings

pytestmark = pytest.mark.spark

PARTITIONS = 3
STORE = "spark.sql.streaming.stateStore"


@pytest.fixture(autouse=True)
def _format_2(spark: SparkSession) -> Iterator[None]:
    log = {f"{STORE}.checkpointFormatVersion": "2", f"{STORE}.providerClass": ROCKSDB}
    with settings(spark, bridge="jvm", partitions=str(PARTITIONS), **log):
        yield


def ids_of(case: Case, batch: int) -> list[str]:
    """The ids that Spark's commit log has of a batch, by partition."""
    newest = (case.checkpoint / "commits" / str(batch)).read_text().splitlines()[-1]
    return [one[0] for one in json.loads(newest)["stateUniqueIds"]["0"]]


def test_partitions_may_differ_from_sparks(case: Case) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0))
    assert case.spark.conf.get("spark.sql.shuffle.partitions") != str(PARTITIONS)
    case.run(case.totals())
    assert ids_of(case, 0) == ["v0-r1"] * PARTITIONS


def test_a_batch_that_is_evaluated_twice_has_one_id(case: Case) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0))
    case.feed(("a", 3, 1.0))
    got: list[list[tuple[object, ...]]] = []

    def twice(batch: DataFrame, number: int) -> None:
        got.extend(sorted((number, *row) for row in batch.collect()) for _ in range(2))

    case.run(case.totals(), twice)
    assert got[0] == got[1] == [(0, "a", 1, 1.0), (0, "b", 1, 2.0)]
    assert got[2] == got[3] == [(1, "a", 2, 2.0)]
    assert ids_of(case, 1) == ["v1-r1"] * PARTITIONS
    case.kill_hosts()
    case.feed(("a", 5, 1.0))
    assert case.run(case.totals()) == [(2, "a", 3, 3.0)]


def test_the_id_of_an_asynchronous_commit_names_what_is_published_later(case: Case) -> None:
    case.feed(("a", 1, 1.0), ("b", 2, 2.0))
    case.feed(("a", 3, 1.0))
    with settings(case.spark, commit="async"):
        case.run(case.totals())
        assert ids_of(case, 1) == ["v1-r1"] * PARTITIONS
        case.kill_hosts()
        case.feed(("a", 5, 1.0), ("b", 6, 1.0))
        assert case.run(case.totals()) == [(2, "a", 3, 3.0), (2, "b", 2, 3.0)]
    assert ids_of(case, 2) == ["v2-r2"] * PARTITIONS


@pytest.mark.parametrize("commit", ["sync", "async"])
def test_a_sink_that_skips_a_replayed_batch_loses_no_row(case: Case, commit: str) -> None:
    """The driver died between the commits of sink and Spark: a file sink skips the batch then."""
    case.feed(("a", 1, 1.0), ("b", 2, 2.0))
    case.feed(("a", 3, 1.0))
    got: list[tuple[object, ...]] = []

    def skipping(batch: DataFrame, number: int) -> None:
        if number > 1:
            got.extend(sorted((number, *row) for row in batch.collect()))

    with settings(case.spark, commit=commit):
        case.run(case.totals())
        for name in ("1", ".1.crc"):
            (case.checkpoint / "commits" / name).unlink(missing_ok=True)
        case.kill_hosts()
        case.feed(("a", 5, 1.0))
        case.run(case.totals(), skipping)
        assert got == [(2, "a", 3, 3.0)]
        assert ids_of(case, 1) == ["v1-r2"] * PARTITIONS


def test_an_id_of_another_operator_is_refused(case: Case) -> None:
    case.feed(("a", 1, 1.0))
    case.run(case.totals())
    entry = case.checkpoint / "commits" / "0"
    entry.write_text(entry.read_text().replace("v0-r1", "4f2c"))
    (entry.parent / ".0.crc").unlink(missing_ok=True)
    case.feed(("a", 2, 1.0))
    assert "Spark's commit log names the state '4f2c' for partition 0" in case.refusal(case.totals())
