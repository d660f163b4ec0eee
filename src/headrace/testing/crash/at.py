"""Plays one case of the matrix: a host stops at a moment, a process is killed, the query goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from headrace.checkpoint.steps import Moment
from headrace.clock import SYSTEM_CLOCK
from headrace.testing.crash.input import write_input
from headrace.testing.crash.lane import GONE_WITHIN_S, Lane, RoundFailed, describe
from headrace.testing.crash.matrix import Case
from headrace.testing.crash.processes import Census, end_all, eventually, kill, marked
from headrace.testing.crash.verdict import problems
from headrace.testing.faults.stops import Stop, clear, give, lift, stopped

_SETTLED_S = 0.5


def play_case(lane: Lane, folder: Path, case: Case) -> list[str]:
    """Plays one case in `folder`; returns the problems, empty if none."""
    plan = case.plan
    write_input(folder / "in", plan.seed, plan.files)
    describe(folder, plan.kind, case.commits_first)
    clear(lane.folder)
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
        clear(lane.folder)
        lane.end()


def _await_batch(lane: Lane, folder: Path, batch: int) -> None:
    if not lane.until(lambda: (folder / "ck" / "offsets" / str(batch)).exists()):
        raise RoundFailed(f"all was over before batch {batch} began")


def _await_stop(lane: Lane, stop: Stop) -> int:
    """The host that has stopped at the moment."""
    give(lane.folder, stop)
    if not lane.until(lambda: stopped(lane.folder, stop) is not None):
        raise RoundFailed(f"all was over before a host came to {stop.moment}")
    return stopped(lane.folder, stop) or 0


def _leave_a_log(lane: Lane, folder: Path, case: Case) -> None:
    """Kills a host while Spark relies on its log, and a query that is to continue in another mode."""
    host = _await_stop(lane, Stop(f"{case.number}-first", Moment.PUBLISHING, case.nth))
    if not lane.until(lambda: _relies_on_the_log(folder)):
        raise RoundFailed("all was over though a commit stood still")
    if case.commits_first != case.combination.commit:
        describe(folder, case.plan.kind, case.combination.commit)
        _kill_driver(lane)
    kill(host)


def _relies_on_the_log(folder: Path) -> bool:
    """Whether Spark has committed the oldest batch that is only logged; others may be retiring."""

    def holds() -> bool:
        query = json.loads((folder / "ck" / "metadata").read_text())["id"]
        logged = (folder.parent / "local" / "log").glob(f"*/{query}/*/p*/v*.log")
        oldest = min((int(path.name[1:13]) for path in logged), default=None)
        return oldest is not None and (folder / "ck" / "commits" / str(oldest)).exists()

    if not holds():
        return False
    SYSTEM_CLOCK.sleep_ms(_SETTLED_S * 1000)
    return holds()


def _strike(lane: Lane, folder: Path, case: Case) -> None:
    """Kills the victim at the moment; the other hosts go on."""
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
    SYSTEM_CLOCK.sleep_ms(case.hold_s * 1000)
    lift(lane.folder)


def _kill_workers(lane: Lane) -> None:
    """Kills what runs tasks: Python workers, or the JVM where operators run in it."""
    census, driver = Census(lane.folder), _driver(lane)
    victims = census.victims("worker", driver) or census.victims("jvm", driver)
    if sum(map(kill, victims)) == 0:
        raise RoundFailed("there was no worker to kill")


def _kill_driver(lane: Lane) -> None:
    """Kills JVM and Python; their hosts notice it themselves."""
    driver = _driver(lane)
    victims = [*Census(lane.folder).victims("jvm", driver), driver]
    if sum(map(kill, victims)) < 2:
        raise RoundFailed("there was no driver to kill")
    assert lane.driver is not None
    lane.driver.wait()


def _lose_the_machine(lane: Lane) -> None:
    """Kills all processes and removes the machine's local disk."""
    end_all(lane.folder)
    if lane.driver is not None:
        lane.driver.wait()
    if not eventually(lambda: not marked(lane.folder), GONE_WITHIN_S):
        raise RoundFailed("processes outlive SIGKILL")
    for name in ("local", "tmp"):
        shutil.rmtree(lane.folder / name)


def _driver(lane: Lane) -> int:
    return 0 if lane.driver is None else lane.driver.pid
