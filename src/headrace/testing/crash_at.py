"""Plays one case of the matrix: a host stops at the moment, the victim dies, and all goes on."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from headrace.checkpoint.steps import Moment
from headrace.testing.crash_input import write_input
from headrace.testing.crash_lane import GONE_WITHIN_S, Lane, RoundFailed, describe
from headrace.testing.crash_matrix import Case
from headrace.testing.crash_processes import Census, end_all, eventually, kill, marked
from headrace.testing.crash_verdict import problems
from headrace.testing.stops import Stop, forget, give, lift, stopped

_SETTLED_S = 0.5


def play_case(lane: Lane, folder: Path, case: Case) -> list[str]:
    """Run one case in `folder`; what went wrong, or nothing."""
    plan = case.plan
    write_input(folder / "in", plan.seed, plan.files)
    describe(folder, plan.kind, case.commits_first)
    forget(lane.folder)
    lane.begin(folder)
    try:
        _await_batch(lane, folder, case.from_batch)
        if case.recovers:
            _leave_a_log(lane, folder, case)
        _strike(lane, folder, case)
        lane.until(lambda: False, every_s=0.05)
        return problems(folder, plan)
    except RoundFailed as error:
        return [str(error)]
    finally:
        forget(lane.folder)
        lane.end()


def _await_batch(lane: Lane, folder: Path, batch: int) -> None:
    if not lane.until(lambda: (folder / "ck" / "offsets" / str(batch)).exists()):
        raise RoundFailed(f"all was over before batch {batch} began")


def _await_stop(lane: Lane, stop: Stop) -> int:
    """The host that came to the moment, and stands there."""
    give(lane.folder, stop)
    if not lane.until(lambda: stopped(lane.folder, stop) is not None):
        raise RoundFailed(f"all was over before a host came to {stop.moment}")
    return stopped(lane.folder, stop) or 0


def _leave_a_log(lane: Lane, folder: Path, case: Case) -> None:
    """Kill a host, and with it a query that is to go on in another mode, when Spark relies on its log."""
    host = _await_stop(lane, Stop(f"{case.number}-first", Moment.PUBLISHING, case.nth))
    if not lane.until(lambda: _relies_on_the_log(folder)):
        raise RoundFailed("all was over though a commit stood still")
    if case.commits_first != case.combination.commit:
        describe(folder, case.plan.kind, case.combination.commit)
        _kill_driver(lane)
    kill(host)


def _relies_on_the_log(folder: Path) -> bool:
    """Whether Spark has committed the oldest batch that is only logged; others may be about to retire."""

    def holds() -> bool:
        query = json.loads((folder / "ck" / "metadata").read_text())["id"]
        logged = (folder.parent / "local" / "log").glob(f"*/{query}/*/p*/v*.log")
        oldest = min((int(path.name[1:13]) for path in logged), default=None)
        return oldest is not None and (folder / "ck" / "commits" / str(oldest)).exists()

    if not holds():
        return False
    time.sleep(_SETTLED_S)
    return holds()


def _strike(lane: Lane, folder: Path, case: Case) -> None:
    """Kill the victim at the moment; hosts that live go on."""
    nth = 1 if case.recovers else case.nth
    host = _await_stop(lane, Stop(str(case.number), case.combination.moment, nth))
    if case.combination.victim == "host":
        kill(host)
    elif case.combination.victim == "worker":
        _kill_workers(lane)
    elif case.combination.victim == "driver":
        _kill_driver(lane)
    else:
        describe(folder, case.plan.kind, case.combination.commit, repairs=True)
        _lose_the_machine(lane)
    time.sleep(case.hold_s)
    lift(lane.folder)


def _kill_workers(lane: Lane) -> None:
    workers = Census(lane.folder).victims("worker", _driver(lane))
    if sum(map(kill, workers)) == 0:
        raise RoundFailed("there was no worker to kill")


def _kill_driver(lane: Lane) -> None:
    """The JVM and Python, whose hosts find out by themselves."""
    driver = _driver(lane)
    victims = [*Census(lane.folder).victims("jvm", driver), driver]
    if sum(map(kill, victims)) < 2:
        raise RoundFailed("there was no driver to kill")
    assert lane.driver is not None
    lane.driver.wait()


def _lose_the_machine(lane: Lane) -> None:
    """All its processes, and all that is on its own disk."""
    end_all(lane.folder)
    if lane.driver is not None:
        lane.driver.wait()
    if not eventually(lambda: not marked(lane.folder), GONE_WITHIN_S):
        raise RoundFailed("processes outlive SIGKILL")
    for name in ("local", "tmp"):
        shutil.rmtree(lane.folder / name)


def _driver(lane: Lane) -> int:
    return 0 if lane.driver is None else lane.driver.pid
