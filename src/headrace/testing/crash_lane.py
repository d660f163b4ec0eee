"""A lane of crash rounds: one driver after another, kept running until each round's input is processed.

A driver lives through as many rounds as it is allowed to: starting Spark costs more than a round. One that
was killed, or whose JVM was, is started again and goes on with the round at hand.
Threads: one round at a time per lane; while a kill is planned, one more thread looks for its victims.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.testing.crash_plan import STARTING, Kill
from headrace.testing.crash_processes import (
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
STOPS = "HEADRACE_CRASH_STOPS"  # in the environment: hosts take orders to stop, and do not pause
_STARTS_MAX = 10
_LOOK_EVERY_S = 0.1


def describe(folder: Path, kind: str, commit: str, *, repairs: bool = False) -> None:
    """Tell the driver what to run in a round; `repairs`: with `hr.start`, whatever the mode."""
    hidden = folder / ".round.next"
    hidden.write_text(json.dumps({"kind": kind, "commit": commit, "repairs": repairs}))
    hidden.rename(folder / DESCRIPTION)


class RoundFailed(Exception):
    """The driver did not get through its input."""


@dataclass
class Lane:
    """Runs rounds one after another in folders below `folder`."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    driver: subprocess.Popen[bytes] | None = None
    struck: list[str] = field(default_factory=list)
    _round: Path = Path()
    _deadline: float = 0.0
    _starts: int = 0

    def begin(self, round_folder: Path) -> None:
        """Give the driver its next round."""
        self._round, self._deadline, self._starts = round_folder, time.monotonic() + ROUND_WITHIN_S, 0
        hidden = self.folder / f"{CURRENT}.next"
        hidden.write_text(round_folder.name)
        hidden.rename(self.folder / CURRENT)

    def end(self) -> None:
        """The round is over, and its folder may go."""
        (self.folder / CURRENT).unlink(missing_ok=True)

    def done(self) -> bool:
        """Whether the round is processed; a driver that ended is started again."""
        if (self._round / DONE).exists():
            return True
        if time.monotonic() > self._deadline:
            raise RoundFailed(f"not finished within {ROUND_WITHIN_S:.0f} s")
        if self.driver is None or self.driver.poll() is not None:
            self._start()
        return False

    def _start(self) -> None:
        if self._starts == _STARTS_MAX:
            raise RoundFailed(f"the driver was started {self._starts} times in vain")
        # Two Sparks on one checkpoint is what Spark itself does not survive; old hosts may live on.
        if not eventually(lambda: not self._has_jvm(), GONE_WITHIN_S):
            raise RoundFailed("the JVM outlives its driver")
        self._starts += 1
        self.driver = start_driver(self.folder, self.environment)

    def _has_jvm(self) -> bool:
        return any(role(process, 0) == "jvm" for process in marked(self.folder))

    def until(self, holds: Callable[[], bool], every_s: float = 0.005) -> bool:
        """Wait until it holds; False when the round was done first."""
        while not holds():
            if self.done():
                return False
            time.sleep(every_s)
        return True

    def strike(self, planned: Kill, rng: random.Random) -> None:
        """Kill the planned kind of process at the planned moment, or nobody when all is over."""
        if not self.until(lambda: self.driver is not None):
            return
        with Victims(self, planned) as found:
            if not self.until(lambda: has_come(self._round, planned), every_s=0.002):
                return
            time.sleep(planned.delay_ms / 1000)
            if self.until(lambda: found.kill(rng), every_s=0.05):
                self.struck.append(str(planned))

    def close(self, within_s: float = GONE_WITHIN_S) -> list[str]:
        """Send the driver home; what still runs afterwards, as readable lines."""
        (self.folder / OVER).touch()
        left = left_running(self.folder, within_s)
        end_all(self.folder)
        return left


class Victims:
    """The processes that a kill may take.

    Threads: one of its own looks for them all the time, because the planned moment is shorter than a look.
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
        while not self._over.wait(_LOOK_EVERY_S):
            driver = self._lane.driver
            pid = 0 if driver is None else driver.pid
            self._pids = census.victims(self._planned.target, pid)

    def kill(self, rng: random.Random) -> bool:
        """Kill one of them, or all workers at once: an idle one alone would disturb nobody."""
        pids = sorted(self._pids)
        if pids and not self._planned.all_at_once:
            pids = [rng.choice(pids)]
        return sum(map(kill, pids)) > 0


def has_come(folder: Path, planned: Kill) -> bool:
    """Whether the batch has come to the planned phase."""
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
    """Whether a partition of the round's query has the batch in its local log, or had it there."""
    metadata = folder / "ck" / "metadata"
    if not metadata.exists():
        return False
    query = json.loads(metadata.read_text())["id"]
    logs = (folder.parent / "local" / "log").glob(f"*/{query}/*/p*")
    shared = (folder / "ck" / "headrace-state" / query).glob(f"*/p*/manifests/v{batch:012d}-*")
    return any(next(log.glob(f"v{batch:012d}-*.log"), None) for log in logs) or any(shared)
