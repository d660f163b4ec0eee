"""Protects a partition whose storage is an object store, far away, throttled, unreliable or gone for a
while. Batches take longer and results stay exact. A new host goes on from local copies, or without them.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.blob.locations import Locations
from headrace.host.process.main import open_by_name
from headrace.host.state.service import PartitionService
from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    input_schema,
)
from headrace.testing.clock import ManualClock
from headrace.testing.faults.faulty_blobs import FaultyBlobs, Outcome, seeded_outcomes
from headrace.testing.faults.s3_server import S3Server, no_faults
from headrace.testing.faults.slow_blobs import drawn_latency
from headrace.testing.state_reader import read_state
from headrace.wire.contract import Ticket

COUNTS = OperatorSpec(
    name="counts",
    keys=(Field("k0", "int64", "k"),),
    inputs=(),
    work=Fold((Accumulator("count", None, "int64"),)),
    window=None,
    emit="changes",
    timed=False,
    delays_ms=(),
    partitions=1,
)
BATCHES = 12


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    with S3Server() as server, server.environment():
        yield server


@pytest.fixture
def server(running: S3Server) -> Iterator[S3Server]:
    running.faults = no_faults
    running.requests.clear()
    yield running
    running.faults = no_faults


def keys_of(batch: int) -> list[int]:
    randomness = random.Random(batch)
    return [randomness.randrange(40) for _ in range(60)]


def run(service: PartitionService, location: str, batch: int) -> dict[int, int]:
    """One batch; the counts that it gave."""
    base = batch - 1 if batch else None
    transaction = service.begin(Ticket("start", "q", COUNTS, 0, batch, base, batch, location, 3))
    keys = pa.array(keys_of(batch), pa.int64())
    hashes = pa.array([key << 50 for key in keys_of(batch)], pa.int64())
    transaction.apply(pa.RecordBatch.from_arrays([hashes, keys], schema=input_schema(COUNTS)))
    results = list(transaction.finish([]))
    transaction.commit()
    return {row["k0"]: row["a0"] for result in results for row in result.to_pylist()}


def expected(batch: int) -> dict[int, int]:
    total = Counter(key for number in range(batch + 1) for key in keys_of(number))
    return {key: total[key] for key in keys_of(batch)}


def run_all(service: PartitionService, location: str, batches: range = range(BATCHES)) -> None:
    for batch in batches:
        assert run(service, location, batch) == expected(batch)


def test_a_new_host_reads_no_segment_twice(server: S3Server, tmp_path: Path) -> None:
    location = server.location("twice")
    first = PartitionService(64 << 20, Locations(tmp_path))
    run_all(first, location, range(10))
    server.requests.clear()  # the first host is killed here: nothing is closed
    second = PartitionService(64 << 20, Locations(tmp_path))
    run_all(second, location, range(10, 14))
    assert [path for method, path in server.requests if method == "GET" and "/segments/" in path] == []
    first.close()
    second.close()


def test_a_lost_local_disk_loses_nothing(server: S3Server, tmp_path: Path) -> None:
    location = server.location("lost")
    first = PartitionService(64 << 20, Locations(tmp_path))
    run_all(first, location, range(10))
    first.close()
    shutil.rmtree(tmp_path / "copies")
    second = PartitionService(64 << 20, Locations(tmp_path))
    run_all(second, location, range(10, 14))
    second.close()
    total = Counter(key for batch in range(14) for key in keys_of(batch))
    assert sorted(read_state(location, "q", "counts", 13).rows()) == sorted(total.items())


def test_what_no_version_needs_goes_here_and_there(server: S3Server, tmp_path: Path) -> None:
    location, locations = server.location("collected"), Locations(tmp_path)
    service = PartitionService(64 << 20, locations)
    run_all(service, location, range(33))
    service.close()
    remote = {name for name in locations.open(location, create=False).list("q/") if "/segments/" in name}
    local = {path.name for path in tmp_path.rglob("segments/*")}
    assert 0 < len(remote) < 33
    assert local == {name.rpartition("/")[2] for name in remote}


def test_a_store_that_throttles_and_loses_replies(server: S3Server, tmp_path: Path) -> None:
    randomness = random.Random(3)
    troubles = [503, 500, 409, Outcome.REPLY_LOST, Outcome.REQUEST_LOST]
    server.faults = lambda method, path: randomness.choice(troubles) if randomness.random() < 0.15 else None
    service = PartitionService(64 << 20, Locations(tmp_path))
    run_all(service, server.location("bad"))
    server.faults = no_faults
    service.close()


def test_files_over_a_bad_line(tmp_path: Path) -> None:
    locations = Locations(tmp_path, wrap=lambda blobs: FaultyBlobs(blobs, seeded_outcomes(5, 0.15)))
    service = PartitionService(64 << 20, locations)
    run_all(service, str(tmp_path / "state"))
    service.close()


@pytest.mark.parametrize("fault", [503, Outcome.REQUEST_LOST])
def test_a_store_that_is_away_is_waited_for_and_reported(
    server: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: int | Outcome
) -> None:
    """Away from the third batch on, until the service has been seen waiting."""
    caplog.set_level(logging.INFO, "headrace.blob")
    location, waits = server.location(f"away-{fault}"), []
    service = PartitionService(64 << 20, Locations(tmp_path))
    run_all(service, location, range(2))

    def away(method: str, path: str) -> int | Outcome | None:
        waits.append(service.status()["storage_waits_ms"].get(location, 0))
        return fault if max(waits) < 200 else None

    server.faults = away
    run_all(service, location, range(2, 5))
    assert max(waits) >= 200
    assert service.status()["storage_waits_ms"] == {}
    assert f"waiting for {location}" in caplog.text
    assert f"{location} is back after" in caplog.text
    server.faults = no_faults
    service.close()


def test_a_host_can_be_told_that_its_storage_is_far(tmp_path: Path) -> None:
    name = "headrace.testing.faults.slow_blobs:open_far?latency_ms=1&spread=0.5&seed=7&fault_rate=0.05"
    service = open_by_name(name)(64 << 20, tmp_path)
    assert isinstance(service, PartitionService)
    run_all(service, str(tmp_path / "state"), range(5))
    service.close()


def test_drawn_latencies_have_their_median_and_their_seed() -> None:
    def slept(seed: int) -> list[float]:
        clock = ManualClock()
        wait = drawn_latency(23.0, 0.5, seed, clock)
        for _ in range(2001):
            wait("read")
        return clock.slept_ms

    assert slept(1) == slept(1) != slept(2)
    assert sorted(slept(1))[1000] == pytest.approx(23.0, rel=0.05)
