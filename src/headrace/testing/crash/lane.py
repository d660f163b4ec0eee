"""A lane of crash rounds: keeps a driver running until each round's input is processed.

A driver serves as many rounds as it survives, because starting Spark costs more than a round. A driver that
was killed, or whose JVM was, is started again and continues the current round.
Threads: one round at a time per lane; while a kill is planned, one more thread looks for its victims.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.clock import SYSTEM_CLOCK, Deadline
from headrace.testing.crash.plan import STARTING, Kill
from headrace.testing.crash.processes import (
    Census,
    end_all,
    eventually,
    kill,
    left_running,
    marked,
    role,
    start_driver,
)

ROUND_WITHIN_S, GONE_WITHIN_S = 600.0, 60.0
DONE, OVER, CURRENT, DESCRIPTION = "done", "over", "round", "round.json"
STOPS = "HEADRACE_CRASH_STOPS"  # in the environment: hosts obey stop orders and do not pause
BRIDGE, FORMAT = "HEADRACE_CRASH_BRIDGE", "HEADRACE_CRASH_FORMAT"  # there too: settings of the driver
PREFETCH = "HEADRACE_CRASH_PREFETCH"
_STARTS_MAX = 10
_LOOK_EVERY_MS = 100.0


def describe(folder: Path, kind: str, commit: str, *, repairs: bool = False) -> None:
    """Writes the round's description for the driver; `repairs`: starts with `hr.start` in any mode."""
    hidden = folder / ".round.next"
    hidden.write_text(json.dumps({"kind": kind, "commit": commit, "repairs": repairs}))
    hidden.rename(folder / DESCRIPTION)


class RoundFailed(Exception):
    """The driver did not finish its input."""


@dataclass
class Lane:
    """Runs rounds one after another in folders below `folder`."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    driver: subprocess.Popen[bytes] | None = None
    struck: list[str] = field(default_factory=list)
    _round: Path = Path()
    _deadline: Deadline = field(default_factory=lambda: Deadline(0))
    _starts: int = 0

    def begin(self, round_folder: Path) -> None:
        """Starts the next round."""
        self._round, self._starts = round_folder, 0
        self._deadline = Deadline(ROUND_WITHIN_S * 1000)
        hidden = self.folder / f"{CURRENT}.next"
        hidden.write_text(round_folder.name)
        hidden.rename(self.folder / CURRENT)

    def end(self) -> None:
        """Ends the round; its folder may be removed."""
        (self.folder / CURRENT).unlink(missing_ok=True)

    def done(self) -> bool:
        """Whether the round is processed; restarts a driver that has ended."""
        if (self._round / DONE).exists():
            return True
        if self._deadline.is_over:
            raise RoundFailed(f"not finished within {ROUND_WITHIN_S:.0f} s")
        if self.driver is None or self.driver.poll() is not None:
            self._start()
        return False

    def _start(self) -> None:
        if self._starts == _STARTS_MAX:
            raise RoundFailed(f"the driver was started {self._starts} times in vain")
        # Spark itself does not survive two Sparks on one checkpoint; old hosts may still run.
        if not eventually(lambda: not self._has_jvm(), GONE_WITHIN_S):
            raise RoundFailed("the JVM outlives its driver")
        self._starts += 1
        self.driver = start_driver(self.folder, self.environment)

    def _has_jvm(self) -> bool:
        return any(role(process, 0) == "jvm" for process in marked(self.folder))

    def until(self, holds: Callable[[], bool], every_s: float = 0.005) -> bool:
        """Waits until `holds` is true; returns False when the round was done first."""
        while not holds():
            if self.done():
                return False
            SYSTEM_CLOCK.sleep_ms(every_s * 1000)
        return True

    def strike(self, planned: Kill, rng: random.Random) -> None:
        """Kills a process of the planned kind at the planned moment, or none when the round is over."""
        if not self.until(lambda: self.driver is not None):
            return
        with Victims(self, planned) as victims:
            if not self.until(lambda: has_come(self._round, planned), every_s=0.002):
                return
            SYSTEM_CLOCK.sleep_ms(planned.delay_ms)
            if self.until(lambda: victims.kill(rng), every_s=0.05):
                self.struck.append(str(planned))

    def close(self, within_s: float = GONE_WITHIN_S) -> list[str]:
        """Ends the driver; returns the processes that still run, as readable lines."""
        (self.folder / OVER).touch()
        left = left_running(self.folder, within_s)
        end_all(self.folder)
        if self.driver is not None:
            self.driver.wait(GONE_WITHIN_S)
        return left


class Victims:
    """The processes that a kill may hit.

    Threads: one of its own looks for them all the time, because a search takes longer than the planned
    moment.
    """

    def __init__(self, lane: Lane, planned: Kill) -> None:
        self._lane = lane
        self._planned = planned
        self._pids: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="crash-victims", daemon=True)

    def __enter__(self) -> Victims:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        census = Census(self._lane.folder)
        while not SYSTEM_CLOCK.wait(self._over, _LOOK_EVERY_MS):
            driver = self._lane.driver
            pid = 0 if driver is None else driver.pid
            self._pids = census.victims(self._planned.target, pid)

    def kill(self, rng: random.Random) -> bool:
        """Kills one of them, or all workers at once: the kill of one idle worker would disturb nothing."""
        pids = sorted(self._pids)
        if pids and not self._planned.all_at_once:
            pids = [rng.choice(pids)]
        return sum(map(kill, pids)) > 0


def has_come(folder: Path, planned: Kill) -> bool:
    """Whether the batch has reached the planned phase."""
    if planned.batch == STARTING:
        return True
    if planned.phase == "begun":
        return (folder / "ck" / "offsets" / str(planned.batch)).exists()
    if planned.phase == "logged":
        return _is_logged(folder, planned.batch)
    if planned.phase == "written":
        return (folder / "out" / "_spark_metadata" / str(planned.batch)).exists()
    kind = "segments" if planned.phase == "sealed" else "manifests"
    files = (folder / "ck" / "headrace-state").glob(f"*/*/p*/{kind}/v{planned.batch:012d}-*")
    return next(files, None) is not None


def _is_logged(folder: Path, batch: int) -> bool:
    """Whether a partition of the round's query has, or had, the batch in its local log."""
    metadata = folder / "ck" / "metadata"
    if not metadata.exists():
        return False
    query = json.loads(metadata.read_text())["id"]
    logs = (folder.parent / "local" / "log").glob(f"*/{query}/*/p*")
    shared = (folder / "ck" / "headrace-state" / query).glob(f"*/p*/manifests/v{batch:012d}-*")
    return any(next(log.glob(f"v{batch:012d}-*.log"), None) for log in logs) or any(shared)
