"""Protects the matrix of kills: it has every moment of the code, every victim and every mode, and a stop
holds a host at its moment until it is lifted."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from headrace.checkpoint.steps import Moment
from headrace.plan.options import COMMIT_MODES
from headrace.testing.crash.matrix import (
    CACHE,
    COLLECTION,
    COMPACTION,
    FILES,
    RESCALE,
    VICTIMS,
    Case,
    matrix,
    occurs,
)
from headrace.testing.crash.queries import KINDS
from headrace.testing.faults.stops import Stop, clear, give, lift, obeying, stopped

# The others: test_commit_moments.py, test_storage_moments.py
MOMENTS = [moment for moment in Moment if moment not in (*RESCALE, *COMPACTION, *COLLECTION, *CACHE)]
WITHIN_S = 60.0  # far more than a thread needs to reach its moment


def test_every_moment_meets_every_victim_and_every_mode_in_which_it_occurs() -> None:
    combinations = [case.combination for case in matrix()]
    assert len(combinations) == len(set(combinations)) == 112
    assert {(one.moment, one.victim) for one in combinations} == {(m, v) for m in MOMENTS for v in VICTIMS}
    assert {(one.victim, one.commit) for one in combinations} == {
        (v, c) for v in VICTIMS for c in COMMIT_MODES
    }
    left_out = {(m, c) for m in MOMENTS for c in COMMIT_MODES} - {
        (one.moment, one.commit) for one in combinations
    }
    behind = (Moment.LOGGING, Moment.LOGGED, Moment.UPLOADING, Moment.UPLOADED, Moment.RETIRED)
    assert left_out == {(moment, "sync") for moment in behind}
    assert all(any(occurs(moment, mode) for mode in COMMIT_MODES) for moment in MOMENTS)


def test_every_query_meets_every_victim() -> None:
    met = Counter((case.plan.kind, case.combination.victim) for case in matrix())
    assert set(met) == {(kind, victim) for kind in KINDS for victim in VICTIMS}


def test_a_choice_has_the_rounds_of_the_whole() -> None:
    whole = list(matrix())
    chosen = list(matrix(Moment.SEALED, "disk", "upload"))
    assert [case.combination for case in chosen] == [
        case.combination
        for case in whole
        if (case.combination.moment, case.combination.victim) == (Moment.SEALED, "disk")
        and case.combination.commit == "upload"
    ]
    assert set(chosen) < set(whole)


def test_there_are_batches_left_after_every_kill() -> None:
    for case in matrix():
        assert 1 <= case.from_batch < FILES - 1
        assert case.plan.files == FILES


def test_a_recovery_has_something_to_recover() -> None:
    first: dict[bool, set[str]] = {True: set(), False: set()}
    for case in matrix():
        first[case.recovers].add(f"{case.combination.commit} after {case.commits_first}")
    assert first[True] == {"sync after async", "upload after upload", "async after async"}
    assert first[False] == {f"{mode} after {mode}" for mode in COMMIT_MODES}


@pytest.fixture
def arrivals(tmp_path: Path) -> list[threading.Thread]:
    """Threads of a host that come to `sealed`."""
    probe = obeying(tmp_path)
    return [threading.Thread(target=probe, args=(Moment.SEALED,), daemon=True) for _ in range(3)]


def await_stop(folder: Path, order: Stop) -> None:
    deadline = time.monotonic() + WITHIN_S
    while stopped(folder, order) is None:
        assert time.monotonic() < deadline, f"nobody stops by {order}"
        time.sleep(0.001)


def ended(thread: threading.Thread) -> None:
    thread.join(WITHIN_S)
    assert not thread.is_alive(), "the thread is still stopped"


def test_a_stop_holds_one_thread_until_it_is_lifted(
    tmp_path: Path, arrivals: list[threading.Thread]
) -> None:
    order = Stop("a", Moment.SEALED, nth=2)
    give(tmp_path, order)
    obeying(tmp_path)(Moment.UPLOADED)  # another moment
    assert stopped(tmp_path, order) is None
    first, second, third = arrivals
    first.start()
    ended(first)
    assert stopped(tmp_path, order) is None
    second.start()
    await_stop(tmp_path, order)
    assert stopped(tmp_path, order) == os.getpid()
    third.start()
    ended(third)
    assert second.is_alive()
    lift(tmp_path)
    ended(second)
    clear(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_new_order_lifts_the_old_one(tmp_path: Path, arrivals: list[threading.Thread]) -> None:
    give(tmp_path, Stop("a", Moment.SEALED))
    arrivals[0].start()
    await_stop(tmp_path, Stop("a", Moment.SEALED))
    give(tmp_path, Stop("b", Moment.RETIRED))
    ended(arrivals[0])
    obeying(tmp_path)(Moment.SEALED)


def test_a_case_says_what_it_is() -> None:
    case = next(iter(matrix(Moment.UPLOADED, "disk", "async")))
    assert isinstance(case, Case)
    assert "disk at uploaded, async" in str(case)
