"""Protects against two live runs of one query: two hosts on one storage, the older one stops committing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.blob.locations import Locations
from headrace.checkpoint.pipeline import Crew
from headrace.checkpoint.restore import restore
from headrace.checkpoint.runs import newest_run
from headrace.errors import Fenced
from headrace.format.names import partition_prefix
from headrace.host.state.service import PartitionService
from headrace.plan.options import CommitMode
from headrace.plan.times import TIMES
from headrace.testing.clock import ManualClock
from headrace.testing.simulation.model import QUERY, SPEC, State, batch_of, state_of
from headrace.wire.contract import Ticket, Transaction


class Driver:
    """One start of the query, with a host and a local disk of its own."""

    def __init__(self, start: str, folder: Path, mode: CommitMode) -> None:
        self.start, self.mode, self.shared = start, mode, str(folder / "state")
        self.clock = ManualClock()
        crew = Crew(clock=self.clock, watched=False)
        self.service = PartitionService(64 << 20, Locations(folder / start), crew)

    def begin(self, batch: int) -> Transaction:
        base = batch - 1 if batch else None
        return self.service.begin(
            Ticket(self.start, QUERY, SPEC, 0, batch, base, batch + 1, self.shared, 3, self.mode)
        )

    def run(self, batch: int, transaction: Transaction | None = None) -> State:
        transaction = transaction or self.begin(batch)
        try:
            transaction.apply(batch_of([("a", batch)]))
            rows = state_of(transaction.finish([]))
            transaction.commit()
        except BaseException:
            transaction.abort()
            raise
        return rows

    def wait_for_look(self) -> None:
        """Longer than a look at the runs counts."""
        self.clock.advance_ms(TIMES.run_fresh_s * 1000 + 1)


@pytest.fixture(params=["sync", "async"])
def drivers(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Driver, Driver]:
    return Driver("old", tmp_path, request.param), Driver("new", tmp_path, request.param)


def test_an_older_run_commits_nothing_once_a_newer_one_is_there(drivers: tuple[Driver, Driver]) -> None:
    old, new = drivers
    assert old.run(0) == {"a": (1, 0)}
    old.service.close()  # its uploads are done
    old = Driver("old", Path(old.shared).parent, old.mode)
    under_way = old.begin(1)
    assert new.run(1) == {"a": (2, 1)}
    old.wait_for_look()
    with pytest.raises(Fenced, match=r"run 1 .* was taken over by run 2"):
        old.run(1, under_way)
    with pytest.raises(Fenced):
        old.run(1)
    new.wait_for_look()
    assert new.run(2) == {"a": (3, 3)}
    new.service.close()
    blobs = Locations(Path(new.shared).parent / "reader").open(new.shared, create=False)
    manifest = restore(blobs, partition_prefix(QUERY, SPEC.name, 0), 2)
    assert manifest is not None
    assert (manifest.run, newest_run(blobs, QUERY)) == (2, 2)


def test_partitions_share_the_looks_of_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr("headrace.host.state.run_guard.ensure_current", lambda *it: looks.append(it[2]))
    driver = Driver("one", tmp_path, "sync")
    driver.run(0)
    assert looks == [], "the claim was a look"
    driver.wait_for_look()
    driver.run(1)
    driver.run(2)
    assert looks == [1]
    driver.service.close()
