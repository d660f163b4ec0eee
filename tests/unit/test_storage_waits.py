"""Protects what the driver tells of hosts that wait for storage, and that it forgets ended queries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_coordinator import BEGIN, View

from headrace.coordinator.core import Coordinator
from headrace.coordinator.ended import QUERIES_KEPT, ended_beyond
from headrace.coordinator.placing.machines import HostReport
from headrace.coordinator.placing.waits import StorageWaits
from headrace.plan.times import TIMES

PLACE = "s3://bucket/state"


@pytest.fixture
def waits(caplog: pytest.LogCaptureFixture) -> StorageWaits:
    caplog.set_level("WARNING", "headrace.coordinator")
    return StorageWaits()


def test_a_wait_is_told_at_once_now_and_then_and_when_it_is_over(
    waits: StorageWaits, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(1, int(2 * TIMES.storage_report_s) + 2):
        waits.update("m", {PLACE: second * 1000.0}, float(second))
    assert waits.longest_s() == {PLACE: 2 * TIMES.storage_report_s + 1}
    waits.update("m", {}, 100.0)
    waits.update("m", {}, 101.0)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"the state host of m waits for {PLACE} since 1 s",
        f"the state host of m waits for {PLACE} since 11 s",
        f"the state host of m waits for {PLACE} since 21 s",
        f"{PLACE} is back for m after about 21 s",
    ]
    assert waits.longest_s() == {}


def test_of_several_hosts_the_longest_wait_counts_and_a_lost_one_waits_no_more(waits: StorageWaits) -> None:
    waits.update("a", {PLACE: 3000.0}, 1.0)
    waits.update("b", {PLACE: 5000.0, "/mnt/state": 100.0}, 1.0)
    assert waits.longest_s() == {PLACE: 5.0, "/mnt/state": 0.1}
    waits.drop("b")
    assert waits.longest_s() == {PLACE: 3.0}


def test_the_oldest_ended_queries_are_forgotten_and_running_ones_never() -> None:
    queries = ["old", "old", "runs", "ended", "new", "newest"]
    assert ended_beyond(queries, lambda query: query == "runs", kept=2) == {"old", "ended"}
    assert ended_beyond(queries, lambda query: False, kept=5) == set()


def test_the_coordinator_keeps_so_many_queries_and_every_running_one() -> None:
    class Ended(View):
        def active_run(self, query: str) -> str | None:
            return "run" if query in ("q0", newest) else None

    coordinator = Coordinator(Ended())
    for number in range(QUERIES_KEPT + 3):
        newest = f"q{number}"
        coordinator.begin(replace(BEGIN, query=newest))
    known = [number for number in range(QUERIES_KEPT + 3) if coordinator.operators(f"q{number}")]
    assert known == [0, *range(3, QUERIES_KEPT + 3)]


def test_a_heartbeat_says_who_waits() -> None:
    coordinator = Coordinator(View())
    coordinator.heartbeat("m", HostReport(1, {}, {"storage_waits_ms": {PLACE: 1500.0}}))
    assert coordinator.storage_waits_s() == {PLACE: 1.5}
    coordinator.heartbeat("m", HostReport(1, {}, {"storage_waits_ms": {}}))
    assert coordinator.storage_waits_s() == {}
