"""Protects what the driver tells of hosts that wait for storage, and that it forgets ended queries."""

from __future__ import annotations

import pytest

from headrace.coordinator.ended import forgotten
from headrace.coordinator.waits import TELL_S, StorageWaits

PLACE = "s3://bucket/state"


@pytest.fixture
def waits(caplog: pytest.LogCaptureFixture) -> StorageWaits:
    caplog.set_level("WARNING", "headrace.coordinator")
    return StorageWaits()


def test_a_wait_is_told_at_once_now_and_then_and_when_it_is_over(
    waits: StorageWaits, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(1, int(2 * TELL_S) + 2):
        waits.heard("m", {PLACE: second * 1000.0}, float(second))
    assert waits.longest_s() == {PLACE: 2 * TELL_S + 1}
    waits.heard("m", {}, 100.0)
    waits.heard("m", {}, 101.0)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"the state host of m waits for {PLACE} since 1 s",
        f"the state host of m waits for {PLACE} since 11 s",
        f"the state host of m waits for {PLACE} since 21 s",
        f"{PLACE} is back for m after about 21 s",
    ]
    assert waits.longest_s() == {}


def test_of_several_hosts_the_longest_wait_counts_and_a_lost_one_waits_no_more(waits: StorageWaits) -> None:
    waits.heard("a", {PLACE: 3000.0}, 1.0)
    waits.heard("b", {PLACE: 5000.0, "/mnt/state": 100.0}, 1.0)
    assert waits.longest_s() == {PLACE: 5.0, "/mnt/state": 0.1}
    waits.forget("b")
    assert waits.longest_s() == {PLACE: 3.0}


def test_the_oldest_ended_queries_are_forgotten_and_running_ones_never() -> None:
    queries = ["old", "old", "runs", "ended", "new", "newest"]
    assert forgotten(queries, lambda query: query == "runs", kept=2) == {"old", "ended"}
    assert forgotten(queries, lambda query: False, kept=5) == set()
