"""Protects commits behind the batches in a running Spark: every mode gives the same, `hr.start` starts and
repairs, and a host or a disk that is lost between the two acknowledgements costs nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter
from streaming_case import Case, Rows

import headrace as hr
from headrace.errors import StateMissing
from headrace.spark.task import task

pytestmark = pytest.mark.spark

EVENTS = [
    [("a", 0, 1.0), ("b", 1, 2.0), ("c", 2, 3.0), (None, 3, 4.0)],
    [("a", 10, 0.5), ("d", 11, 1.0)],
    [("a", 20, 0.25), ("b", 21, 0.5), ("e", 22, 8.0)],
]
LATER = [("a", 30, 1.0), ("e", 31, 1.0)]
OUT: Rows = [
    *[("a", 1, 1.0), ("b", 1, 2.0), ("c", 1, 3.0), (None, 1, 4.0)],
    *[("a", 2, 1.5), ("d", 1, 1.0)],
    *[("a", 3, 1.75), ("b", 2, 2.5), ("e", 1, 8.0)],
]
OUT_LATER: Rows = [("a", 4, 2.75), ("e", 2, 9.0)]
PARTITIONS = 3


@pytest.fixture
def fed(case: Case) -> Case:
    for events in EVENTS:
        case.feed(*events)
    return case


def sink(case: Case) -> Path:
    return case.checkpoint.parent / "out"


def writer_of(case: Case, df: DataFrame) -> DataStreamWriter:
    """A file sink: it skips a batch that it has seen, without even running it."""
    writer = df.writeStream.format("parquet").option("path", str(sink(case)))
    return writer.option("checkpointLocation", str(case.checkpoint)).trigger(availableNow=True)


def written(case: Case) -> Rows:
    return [tuple(row) for row in case.spark.read.parquet(str(sink(case))).collect()]


def by_user(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def kill_hosts(case: Case) -> None:
    for pid in [host.pid for host in case.coordinator.hosts().values()]:
        with suppress(ProcessLookupError):  # the coordinator heard of it, and it has died since
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while psutil.pid_exists(pid) and time.monotonic() < deadline:
            time.sleep(0.02)


def published(case: Case, version: int) -> bool:
    try:
        case.state_at(version)
    except StateMissing:
        return False
    return True


def await_published(case: Case, version: int) -> None:
    deadline = time.monotonic() + 30
    while not published(case, version):
        assert time.monotonic() < deadline, f"version {version} is not published"
        time.sleep(0.05)


@pytest.fixture
def dying(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Hosts of this test are ones that die or pause; the next test gets an ordinary one."""
    kill_hosts(case)
    yield monkeypatch
    kill_hosts(case)


def let_hosts(monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    plain = task.task_of
    service = f"headrace.testing.faults.dying_service:open_dying?{failure}"
    monkeypatch.setattr(task, "task_of", lambda plan: plain(replace(plan, service=service)))


@pytest.mark.parametrize("mode", [pytest.param("upload", marks=pytest.mark.long), "async"])
def test_every_mode_gives_what_sync_gives(fed: Case, mode: str) -> None:
    fed.spark.conf.set("spark.headrace.commit", mode)
    try:
        query = writer_of(fed, fed.totals()).start()
        query.awaitTermination()
    finally:
        fed.spark.conf.unset("spark.headrace.commit")
    assert by_user(written(fed)) == by_user(OUT)
    first, second, third = hr.progress(query)["totals"]
    assert {batch.commit for batch in (first, second, third)} == {mode}
    assert first.hidden_ms > 0
    assert second.hidden_ms > 0
    await_published(fed, 2)
    assert len(fed.state_at(2).rows()) == 6


def test_hr_start_commits_behind_and_leaves_the_session_as_it_was(fed: Case) -> None:
    query = hr.start(writer_of(fed, fed.totals()))
    query.awaitTermination()
    assert {batch.commit for batch in hr.progress(query)["totals"]} == {"async"}
    assert fed.spark.conf.get("spark.headrace.commit", None) is None
    fed.feed(*LATER)
    query = writer_of(fed, fed.totals()).start()
    query.awaitTermination()
    assert {batch.commit for batch in hr.progress(query)["totals"]} == {"sync"}
    assert by_user(written(fed)) == by_user([*OUT, *OUT_LATER])


def test_a_host_killed_between_the_acknowledgements_loses_nothing(
    fed: Case, dying: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    let_hosts(dying, f"moment=publishing&nth={PARTITIONS + 2}&once={tmp_path / 'died'}")
    hr.start(writer_of(fed, fed.totals())).awaitTermination()
    assert (tmp_path / "died").exists()
    assert by_user(written(fed)) == by_user(OUT)
    await_published(fed, 2)


@pytest.mark.parametrize("disk_lost", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_query_that_ended_between_the_acknowledgements_goes_on(
    fed: Case, dying: pytest.MonkeyPatch, disk_lost: bool
) -> None:
    with dying.context() as paused:
        let_hosts(paused, f"moment=publishing&nth={2 * PARTITIONS + 1}&pause_s=60")
        hr.start(writer_of(fed, fed.totals())).awaitTermination()
    assert not published(fed, 2)
    kill_hosts(fed)
    if disk_lost:
        shutil.rmtree(Path(fed.spark.conf.get("spark.headrace.state.local") or "") / "log")
        assert "hr.start" in refusal_of_plain_start(fed)
    else:
        fed.feed(*LATER)
    query = hr.start(writer_of(fed, fed.totals()))
    query.awaitTermination()
    assert by_user(written(fed)) == by_user([*OUT, *OUT_LATER])
    withdrawn = fed.checkpoint / "headrace-withdrawn" / "commits" / "2"
    assert withdrawn.exists() == disk_lost
    await_published(fed, 3)
    assert fed.state_at(3).rows() != []


def refusal_of_plain_start(case: Case) -> str:
    """A plain start has no way to know that a batch may be taken back."""
    case.feed(*LATER)
    with pytest.raises(Exception, match="version 2 is missing") as refused:
        writer_of(case, case.totals()).start().awaitTermination()
    return str(refused.value)
