"""Protects a running query against storage that is away for a while and against full disks: it waits and
says so, or fails with a remedy, and then goes on to the exact result.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from streaming_case import FOURTH, Case, Rows, finished_case

import headrace as hr
from headrace.testing.faults.s3_server import S3Server

pytestmark = pytest.mark.spark

LOCATION, COMMIT = "spark.headrace.state.location", "spark.headrace.commit"
LOCAL = "spark.headrace.state.local"
BATCHES = 5
USERS = 7
WITHIN_S = 300  # far more than anything here takes, on a machine that is busy with other things


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Settings of the session by their last words, and hosts of one's own, until the block ends."""
    names = {"location": LOCATION, "commit": COMMIT, "local": LOCAL}
    before = {names[name]: spark.conf.get(names[name], None) for name in values}
    Case(spark, Path(), Path()).kill_hosts()
    for name, value in values.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for full, value in before.items():
            if value is None:
                spark.conf.unset(full)
            else:
                spark.conf.set(full, value)
        send_away(Case(spark, Path(), Path()))


def send_away(case: Case) -> None:
    """Hosts that had settings of their own end in order: none will come after them to clean up."""
    for host in case.coordinator.hosts().values():
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(host.pid)
            process.terminate()
            process.wait(WITHIN_S)


def fed(case: Case) -> Case:
    for batch in range(BATCHES):
        case.feed(*[(f"u{number % USERS}", batch, 1.0) for number in range(batch, batch + 5)])
    return case


def expected() -> Rows:
    counts: dict[str, int] = {}
    rows: Rows = []
    for batch in range(BATCHES):
        users = [f"u{number % USERS}" for number in range(batch, batch + 5)]
        for user in users:
            counts[user] = counts.get(user, 0) + 1
        rows += [(batch, user, counts[user], float(counts[user])) for user in users]
    return sorted(rows, key=repr)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def cpu_s(case: Case) -> float:
    """What the state hosts have computed so far."""
    (host,) = case.coordinator.hosts().values()
    times = psutil.Process(host.pid).cpu_times()
    return float(times.user + times.system)


@pytest.mark.parametrize("away_s", [4, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", [pytest.param("sync", marks=pytest.mark.long), "async"])
def test_storage_that_goes_away_in_mid_run_is_waited_for(
    case: Case, server: S3Server, mode: str, away_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    got: Rows = []
    left = Event()

    def collect(batch: DataFrame, number: int) -> None:
        got.extend((number, *row) for row in batch.collect())
        if number == 1:
            server.leave()
            left.set()

    caplog.set_level(logging.WARNING, "headrace.coordinator")
    location = server.location(case.checkpoint.parent.name)
    with settings(case.spark, location=location, commit=mode):
        writer = fed(case).totals().writeStream.option("checkpointLocation", str(case.checkpoint))
        query = writer.foreachBatch(collect).trigger(availableNow=True).start()
        try:
            assert left.wait(WITHIN_S)
            until(lambda: location in hr.storage_waits(), "nobody says that the query waits")
            before = cpu_s(case)
            time.sleep(away_s)
            assert cpu_s(case) - before < 0.5 * away_s, "a thread spins"
            assert location in hr.storage_waits()
            assert query.isActive
            reached = 1 if mode == "sync" else 2  # the one after it may be logged, and wait to be published
            assert max(number for number, *_ in got) <= reached, "a batch was over without its state"
            server.come_back()
            query.awaitTermination()
        finally:
            query.stop()
        until(lambda: not hr.storage_waits(), "it still says that it waits")
        assert sorted(got, key=repr) == expected()
    assert f"waits for {location}" in caplog.text
    assert f"{location} is back" in caplog.text


@pytest.fixture
def disk(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "headrace-tests", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("this user may not mount file systems")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Leave not a single free byte."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def test_a_full_local_disk_stops_the_query_until_there_is_space(
    spark: SparkSession, tmp_path: Path, disk: Path
) -> None:
    with settings(spark, local=str(disk / "local"), commit="async"):
        case = finished_case(spark, tmp_path)
        until(lambda: is_at_rest(disk), "the ended query still has files there")
        ballast = fill(disk)
        refusal = case.refusal(case.totals())
        assert str(disk / "local") in refusal
        assert "No space left on device" in refusal
        assert "free space there, or set spark.headrace.state.local" in refusal
        ballast.unlink()
        assert case.run(case.totals()) == FOURTH
        until(lambda: is_published(case, 3), "its state is not published")
        assert [set(row) for row in case.state_at(3).rows() if row[0] == "a"] == [{"a", 4, 2.75}]


def test_a_full_state_location_stops_the_query_until_there_is_space(
    spark: SparkSession, tmp_path: Path, disk: Path
) -> None:
    with settings(spark, location=str(disk / "state")):
        case = finished_case(spark, tmp_path)
        ballast = fill(disk)
        refusal = case.refusal(case.totals())
        assert str(disk / "state") in refusal
        assert "No space left on device" in refusal
        assert "free space on that file system" in refusal
        ballast.unlink()
        assert case.run(case.totals()) == FOURTH


def is_at_rest(disk: Path) -> bool:
    """Whether the ended query has freed its disk space: no file of it is left, deleted files are closed.

    The host's own files stay, and `log/disk`, which identifies the disk.
    """
    files = [path for path in disk.rglob("*") if path.is_file()]
    space = os.statvfs(disk)
    in_use = (space.f_blocks - space.f_bfree) * space.f_frsize
    named = sum(path.stat().st_blocks * 512 for path in files)
    own = all(path.name.startswith("host-") or path.parts[-2:] == ("log", "disk") for path in files)
    return in_use == named and own


def is_published(case: Case, version: int) -> bool:
    with suppress(hr.HeadraceError):
        return bool(case.state_at(version).rows())
    return False
