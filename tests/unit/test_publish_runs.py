"""Protects run numbers: one per start of a query, growing, never shared through a race or a lost reply."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.blob.memory import MemoryBlobs
from headrace.checkpoint.runs import REMEMBERED, claim_run, ensure_current, newest_run, start_of
from headrace.errors import Fenced, HeadraceError, StateCorrupt, StateMissing
from headrace.format.names import run_record
from headrace.testing import FaultyBlobs, ManualClock, seeded_outcomes


def test_a_start_keeps_its_run_and_the_next_takes_the_next() -> None:
    blobs = MemoryBlobs()
    assert [claim_run(blobs, "q", start) for start in ("a", "a", "b", "b", "c")] == [1, 1, 2, 2, 3]
    assert claim_run(blobs, "another query", "a") == 1
    assert newest_run(blobs, "q") == 3


def test_a_start_that_was_overtaken_does_not_come_back() -> None:
    """A host of the older start that is started again must not fence the newer one."""
    blobs = MemoryBlobs()
    claim_run(blobs, "q", "a")
    claim_run(blobs, "q", "b")
    with pytest.raises(Fenced, match="taken over by run 2"):
        claim_run(blobs, "q", "a")
    assert newest_run(blobs, "q") == 2


def test_racing_starts_get_different_runs_and_hosts_of_one_share_its() -> None:
    blobs = MemoryBlobs()
    for number in range(1, 8):
        with ThreadPoolExecutor(8) as pool:
            apps = [f"{number}-{index % 4}" for index in range(8)]
            claimed = list(pool.map(lambda app: _claim(blobs, app), apps))
        for app, run in zip(apps, claimed, strict=True):
            assert run is None or start_of(blobs, "q", run) == app
        assert len({app for app, run in zip(apps, claimed, strict=True) if run is not None}) == 4


def _claim(blobs: MemoryBlobs, start: str) -> int | None:
    """The run of a start; None when another one has already overtaken it."""
    try:
        return claim_run(blobs, "q", start)
    except Fenced:
        return None


@pytest.mark.parametrize("seed", range(30))
def test_lost_replies_do_not_make_two_owners(seed: int) -> None:
    storage, owners = MemoryBlobs(), {}
    faulty = FaultyBlobs(storage, seeded_outcomes(seed, 0.3))
    for app in ["a", "b", "c", "d"]:
        try:
            run = claim_run(faulty, "q", app, clock=ManualClock())
        except HeadraceError:
            continue
        assert owners.setdefault(run, app) == app
        assert start_of(storage, "q", run) == app


def test_a_larger_run_fences_a_smaller() -> None:
    blobs = MemoryBlobs()
    old = claim_run(blobs, "q", "a")
    ensure_current(blobs, "q", old)
    new = claim_run(blobs, "q", "b")
    ensure_current(blobs, "q", new)
    with pytest.raises(Fenced, match=r"run 1 .* taken over by run 2 .start b"):
        ensure_current(blobs, "q", old)


def lose_runs(blobs: MemoryBlobs) -> None:
    for name in blobs.list("q/runs/"):
        blobs.delete(name)


def test_a_lost_folder_of_runs_is_noticed_before_numbers_begin_again() -> None:
    blobs = MemoryBlobs()
    run = claim_run(blobs, "q", "a")
    lose_runs(blobs)
    with pytest.raises(StateMissing, match="lost its runs"):
        claim_run(blobs, "q", "b", has_state=True)
    with pytest.raises(StateMissing, match="run 1 is not there"):
        ensure_current(blobs, "q", run)
    assert newest_run(blobs, "q") == 0


def test_a_damaged_run_is_named() -> None:
    blobs = MemoryBlobs()
    blobs.put_if_absent(run_record("q", 1), b"garbage")
    with pytest.raises(StateCorrupt, match="00000001"):
        claim_run(blobs, "q", "a")


def test_records_of_old_starts_go() -> None:
    """A query that is started every minute must not leave a file for every minute."""
    blobs = MemoryBlobs()
    for number in range(1, 3 * REMEMBERED):
        assert claim_run(blobs, "q", f"start-{number}") == number
    assert len(blobs.list("q/runs/")) == REMEMBERED
    assert newest_run(blobs, "q") == 3 * REMEMBERED - 1
