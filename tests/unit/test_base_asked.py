"""Protects the question whether a base still counts: no batch waits for the answer where the coordinator
knows of no newer attempt. An answer that came too late for its batch stops the next one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_commit_behind import Host

from headrace.errors import TryAgain
from headrace.plan.options import CommitMode
from headrace.testing.simulation.model import State, batch_of, state_of
from headrace.wire.contract import Ticket


class Told(Host):
    """A host whose tickets name the base's newest attempt, as the coordinator knows it."""

    def ticket(self, number: int, attempt: int, mode: CommitMode = "async") -> Ticket:
        return replace(super().ticket(number, attempt, mode), base_attempt=number if number else None)


@pytest.fixture
def host(tmp_path: Path) -> Told:
    return Told(tmp_path)


def state_after(host: Host, number: int, attempt: int) -> State:
    return host.results(number, attempt)[1]


def test_a_batch_does_not_wait_for_the_answer(host: Told) -> None:
    host.run(0)
    host.jobs.drain()
    host.run(1)
    (partition,) = host.service.partitions
    assert partition.awaits_check
    host.jobs.drain()
    assert state_after(host, 2, 3)["a"] == (3, 3)


def test_a_late_answer_stops_the_next_batch(host: Told, tmp_path: Path) -> None:
    host.run(0)
    host.jobs.drain()
    transaction = host.service.begin(host.ticket(1, attempt=2))
    transaction.apply(batch_of([("a", 1)]))
    assert state_of(transaction.finish([]))["a"] == (2, 2)
    other = Host(tmp_path, local="another")
    other.run(0, attempt=5)
    other.jobs.drain()
    transaction.commit()
    with pytest.raises(TryAgain, match="written again"):
        host.run(2, attempt=6)
    assert state_after(host, 2, 7)["a"] == (3, 3)


def test_a_batch_waits_where_a_newer_attempt_is_known(host: Told, tmp_path: Path) -> None:
    host.run(0)
    host.jobs.drain()
    other = Host(tmp_path, local="another")
    other.run(0, attempt=5)
    other.jobs.drain()
    ticket = replace(host.ticket(1, attempt=6), base_attempt=5)
    transaction = host.service.begin(ticket)
    transaction.apply(batch_of([("a", 1)]))
    list(transaction.finish([]))
    with pytest.raises(TryAgain, match="written again"):
        transaction.commit()
    transaction.abort()
