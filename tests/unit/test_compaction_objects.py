"""Protects compaction elsewhere on a real S3 API: a compactor's process reads inputs and writes its output
there. Bad weather, and the death of the process, cost time only."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_remote_compaction import BATCHES, SECRET, Query, expected

from headrace.plan.options import CommitMode
from headrace.store.segments import compact
from headrace.testing.faults.faulty_blobs import Outcome
from headrace.testing.faults.s3_server import S3Server

TROUBLES = [503, 500, Outcome.REPLY_LOST, Outcome.REQUEST_LOST]


@pytest.fixture(autouse=True)
def few_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three segments are enough for a compaction."""
    monkeypatch.setattr(compact, "FAN_IN_UNREAD", 3)


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as server, server.environment():
        yield server


@contextmanager
def compactor(folder: Path) -> Iterator[str]:
    """The address of a compactor's process, which has this process's environment."""
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    command = [sys.executable, "-m", "headrace", "compactor", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--secret-file", str(secret)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},  # a killed compactor leaves its folder
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("compactor at ").strip()
        finally:
            process.kill()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_compactor_takes_the_work_on_an_object_store(
    server: S3Server, tmp_path: Path, mode: CommitMode
) -> None:
    location = server.location("compacted")
    with compactor(tmp_path) as address:
        query = Query(tmp_path, [address], mode, shared=location)
        query.play()
        query.service.close()
    assert query.phases["remote"] >= 3
    assert query.phases["compaction"] == 0
    again = Query(tmp_path, [], mode, start=1, shared=location)
    assert again.run(BATCHES) == expected(BATCHES), "the object store alone has everything"
    again.service.close()


def test_in_bad_weather_results_stay_exact(server: S3Server, tmp_path: Path) -> None:
    randomness = random.Random(5)
    server.faults = lambda method, path: (
        randomness.choice(TROUBLES) if "/segments/" in path and randomness.random() < 0.2 else None
    )
    with compactor(tmp_path) as address:
        query = Query(tmp_path, [address], shared=server.location("weather"))
        for number in range(12):
            assert query.run(number) == expected(number)
        query.rest()
        query.service.close()
    again = Query(tmp_path, [], start=1, shared=server.location("weather"))
    assert again.run(12) == expected(12)
    again.service.close()


def test_a_compactor_that_dies_costs_time_only(server: S3Server, tmp_path: Path) -> None:
    location = server.location("dead")
    with compactor(tmp_path) as address:
        query = Query(tmp_path, [address], shared=location)
        for number in range(6):
            assert query.run(number) == expected(number)
            query.rest()
    for number in range(6, BATCHES):
        assert query.run(number) == expected(number)
        query.rest()
    query.service.close()
    assert query.phases["remote"] >= 1
    assert query.phases["compaction"] >= 1
    again = Query(tmp_path, [], start=1, shared=location)
    assert again.run(BATCHES) == expected(BATCHES)
    again.service.close()
