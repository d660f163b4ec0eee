"""Crash rounds: kill the host, a worker or the driver at random moments; nothing may be lost or doubled.

A round is a pure function of its seed as far as input, query, victims and moments go; the machine's own
timing does the rest. Its driver runs until all input is processed, is killed on the way and started
again; then output and state must equal the model's. A round that fails keeps its folder.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from headrace.testing.crash_input import write_input
from headrace.testing.crash_plan import STARTING, Kill, Plan, plan
from headrace.testing.crash_processes import (
    end_all,
    eventually,
    kill,
    left_running,
    marked,
    role,
    start_driver,
    victims,
)
from headrace.testing.crash_verdict import problems

ROUND_WITHIN_S, GONE_WITHIN_S = 600.0, 60.0
_STARTS_MAX = 10
_LOOK_EVERY_S = 0.1


class RoundFailed(Exception):
    """The driver did not get through its input."""


@dataclass
class Supervisor:
    """Keeps a round's driver running until it has processed everything."""

    folder: Path
    deadline: float
    starts: int = 0
    driver: subprocess.Popen[bytes] | None = None
    struck: list[str] = field(default_factory=list)

    def done(self) -> bool:
        """Whether the driver has finished; one that ended otherwise is started again."""
        if time.monotonic() > self.deadline:
            raise RoundFailed(f"not finished within {ROUND_WITHIN_S:.0f} s")
        code = None if self.driver is None else self.driver.poll()
        if self.driver is None or code not in (None, 0):
            self._start()
        return code == 0

    def _start(self) -> None:
        if self.starts == _STARTS_MAX:
            raise RoundFailed(f"the driver was started {self.starts} times in vain")
        # Two Sparks on one checkpoint is what Spark itself does not survive; old hosts may live on.
        if not eventually(lambda: not self._has_jvm(), GONE_WITHIN_S):
            raise RoundFailed("the JVM outlives its driver")
        self.starts += 1
        self.driver = start_driver(self.folder)

    def _has_jvm(self) -> bool:
        return any(role(process, 0) == "jvm" for process in marked(self.folder))

    def until(self, holds: Callable[[], bool], every_s: float = 0.005) -> bool:
        """Wait until it holds; False when the driver finished first."""
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
            if not self.until(lambda: has_come(self.folder, planned), every_s=0.002):
                return
            time.sleep(planned.delay_ms / 1000)
            if self.until(lambda: found.kill(rng), every_s=0.05):
                self.struck.append(str(planned))


class Victims:
    """The processes that a kill may take.

    Threads: one of its own looks for them all the time, because the planned moment is shorter than a look.
    """

    def __init__(self, supervisor: Supervisor, planned: Kill) -> None:
        self._supervisor = supervisor
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
        while not self._over.wait(_LOOK_EVERY_S):
            driver = self._supervisor.driver
            pid = 0 if driver is None else driver.pid
            self._pids = victims(self._supervisor.folder, self._planned.target, pid)

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
    if planned.phase == "written":
        return (folder / "out" / "_spark_metadata" / str(planned.batch)).exists()
    kind = "segments" if planned.phase == "sealed" else "manifests"
    files = (folder / "ck" / "headrace-state").glob(f"*/*/p*/{kind}/v{planned.batch:012d}-*")
    return next(files, None) is not None


def play(folder: Path, round_: Plan) -> list[str]:
    """Run one round in `folder`; what went wrong, or nothing."""
    write_input(folder / "in", round_.seed)
    (folder / "round.json").write_text(json.dumps({"kind": round_.kind, "seed": round_.seed}))
    supervisor, rng = Supervisor(folder, time.monotonic() + ROUND_WITHIN_S), random.Random(round_.seed)
    try:
        for planned in round_.kills:
            supervisor.strike(planned, rng)
        supervisor.until(lambda: False, every_s=0.05)
        left = [f"left running: {line}" for line in left_running(folder, GONE_WITHIN_S)]
        return [*left, *problems(folder, round_)]
    except RoundFailed as error:
        return [str(error)]
    finally:
        end_all(folder)


def run_round(seed: int, say: Callable[[str], None] = print) -> bool:
    """Play the round of a seed and report; whether it passed."""
    round_ = plan(seed)
    folder, begun = Path(tempfile.mkdtemp(prefix="headrace-crash-")), time.monotonic()
    wrong = play(folder, round_)
    took = f"{time.monotonic() - begun:.1f} s"
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
        say(f"passed in {took}: {round_}")
        return True
    say(f"FAILED in {took}: {round_}")
    for line in wrong:
        say(f"    {line}")
    say(f"    its files are in {folder}; repeat it with: headrace crash --rounds 1 --seed {seed}")
    return False


def _run_and_print(seed: int) -> bool:
    """What a round has to say, all at once, because others run beside it."""
    said: list[str] = []
    passed = run_round(seed, said.append)
    print("\n".join(said), flush=True)
    return passed


def run_rounds(rounds: int, seed: int, lanes: int = 1) -> int:
    """Play `rounds` rounds from `seed` on, `lanes` at a time; the exit code of the command."""
    with ThreadPoolExecutor(lanes) as pool:
        passed = sum(pool.map(_run_and_print, range(seed, seed + rounds)))
    print(f"{passed} passed, {rounds - passed} failed", flush=True)
    return 0 if passed == rounds else 1
