"""Protects a live query from a second driver, and from itself where a second one has taken its place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from streaming_case import Case, Rows
from typer.testing import CliRunner

from headrace.blob.locations import Locations
from headrace.checkpoint.beside.lease import read_lease
from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import RecordLog
from headrace.checkpoint.records import SmallFiles
from headrace.checkpoint.runs import claim_run
from headrace.cli.main import app
from headrace.plan.times import TIMES

pytestmark = pytest.mark.spark


@pytest.fixture
def live(case: Case) -> Iterator[tuple[StreamingQuery, Rows]]:
    """A query that waits for more after its first two batches."""
    rows: Rows = []

    def collect(batch: DataFrame, number: int) -> None:
        rows.extend((number, *row) for row in batch.collect())

    case.feed(("a", 0, 1.0))
    case.feed(("a", 1, 1.0))
    writer = case.totals().writeStream.option("checkpointLocation", str(case.checkpoint))
    query = writer.foreachBatch(collect).trigger(processingTime="100 milliseconds").start()
    query.processAllAvailable()
    yield query, rows
    with suppress(StreamingQueryException):
        query.stop()


def test_a_second_driver_withdraws_nothing_from_a_live_one(
    case: Case, live: tuple[StreamingQuery, Rows], tmp_path: Path
) -> None:
    """Its newest version is missing on shared storage, as if its upload took long."""
    query, rows = live
    manifests = list(case.state.glob("*/totals/p*/manifests/v000000000001-*"))
    aside = [path.rename(tmp_path / f"{number}") for number, path in enumerate(manifests)]
    reply = CliRunner().invoke(
        app, ["recover", str(case.checkpoint), "--local", str(tmp_path / "b"), "--yes"]
    )
    assert reply.exit_code == 1
    assert f"is running: application {case.spark.sparkContext.applicationId}" in reply.output
    assert sorted(path.name for path in (case.checkpoint / "commits").glob("[0-9]*")) == ["0", "1"]
    for path, name in zip(aside, manifests, strict=True):
        path.rename(name)
    case.feed(("a", 2, 1.0))
    query.processAllAvailable()
    assert rows == [(0, "a", 1, 1.0), (1, "a", 2, 2.0), (2, "a", 3, 3.0)]


def test_a_driver_that_was_overtaken_stops(
    case: Case, live: tuple[StreamingQuery, Rows], tmp_path: Path
) -> None:
    query, rows = live
    blobs = Locations(tmp_path / "b").open(str(case.state), create=False)
    claim_run(blobs, query.id, "another driver")
    time.sleep(TIMES.run_fresh_s)
    case.feed(("a", 2, 1.0))
    with pytest.raises(StreamingQueryException, match="was taken over by run 2"):
        query.processAllAvailable()
    assert [row[0] for row in rows] == [0, 1]


@pytest.mark.parametrize("bridge", ["jvm", "python"])
def test_a_batch_that_another_driver_has_committed_reaches_no_second_sink(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bridge: str
) -> None:
    """A driver reads Spark's commit log, and is slow; the other one commits the batch meanwhile."""
    case.spark.conf.set("spark.headrace.bridge", bridge)
    case.feed(("a", 0, 1.0))
    case.feed(("a", 1, 1.0))
    case.run(case.totals())
    names = [name for name in ("1", ".1.crc") if (case.checkpoint / "commits" / name).exists()]
    for name in names:
        (case.checkpoint / "commits" / name).rename(tmp_path / name)

    def slow(files: SmallFiles, operator: str) -> RecordLog:
        for name in names:
            (tmp_path / name).rename(case.checkpoint / "commits" / name)
        names.clear()
        return RecordLog(files, operator)

    monkeypatch.setattr("headrace.coordinator.operators.RecordLog", slow)
    rows: Rows = []
    with pytest.raises(StreamingQueryException, match="batch 1 is committed already: another start"):
        case.run(case.totals(), lambda batch, _: rows.extend(batch.collect()))
    assert not names, "the query has begun a batch"
    assert rows == []
    case.feed(("a", 2, 1.0))
    assert case.run(case.totals()) == [(2, "a", 3, 3.0)]


def test_a_lease_leaves_with_its_query(case: Case, live: tuple[StreamingQuery, Rows]) -> None:
    files = LocalFiles(f"file:{case.checkpoint}")
    lease = read_lease(files)
    assert lease is not None
    assert lease.run == live[0].runId
    live[0].stop()
    deadline = time.monotonic() + 30
    while read_lease(files) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
