"""Protects batches from background work: jobs hold up no other partition, collections wait for no job, and
segments cannot pile up.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_commit_behind import Host

from headrace.host.state import maintenance
from headrace.host.state.upkeep import Lane, Upkeep

BATCHES = 40


def compacted(host: Host) -> int:
    """The segments of the only partition."""
    (partition,) = host.service.partitions
    assert partition.store is not None
    return len(partition.store.segments)


def test_a_batch_waits_for_the_job_when_segments_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SEGMENTS_MAX", 9)
    host, most = Host(tmp_path), 0
    for number in range(BATCHES):
        host.run(number, mode="sync")  # no job runs unless a batch waits for it
        most = max(most, compacted(host))
    assert 9 <= most <= 11
    host.service.close()


def test_jobs_of_two_partitions_run_at_once_and_collections_beside_them() -> None:
    upkeep, both = Upkeep(), threading.Barrier(3, timeout=60)
    first = upkeep.jobs.submit("a", lambda: both.wait() and None)
    second = upkeep.jobs.submit("b", lambda: both.wait() and None)
    collected = threading.Event()
    assert upkeep.jobs.submit("a", lambda: None) is None, "one job of a partition at a time"
    upkeep.collections.submit("a", collected.set)
    assert collected.wait(60), "a collection does not wait for jobs"
    both.wait()
    assert first is not None
    assert second is not None
    first.result(60)
    second.result(60)
    assert not upkeep.jobs.is_busy("a")
    upkeep.close()
    assert upkeep.jobs.submit("a", lambda: None) is None


def test_a_lane_goes_on_after_a_failure_and_breaks_off_at_the_end() -> None:
    stopping, runs = threading.Event(), []
    lanes = [Lane(ThreadPoolExecutor(1), stopping.is_set, finishes=finishes) for finishes in (False, True)]

    def fail() -> None:
        raise ValueError("a failure")

    failed = lanes[0].submit("p", fail)
    assert failed is not None
    assert failed.result(60) is None
    hold = threading.Event()
    for number, lane in enumerate(lanes):
        lane.submit("p", lambda: hold.wait(60) and None)
        lane.submit("q", lambda number=number: runs.append(number))  # type: ignore[misc]
    stopping.set()
    hold.set()
    for lane in lanes:
        lane.close()
    assert runs == [1], "collections are finished, jobs are not"
