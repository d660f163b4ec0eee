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
import time
from collections.abc import Callable
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
        """Kill one process of the planned kind at the planned moment, or nobody when all is over."""
        if not self.until(lambda: self._has_begun(planned.batch)):
            return
        time.sleep(planned.delay_ms / 1000)
        found: list[int] = []

        def present() -> bool:
            assert self.driver is not None
            found[:] = victims(self.folder, planned.target, self.driver.pid)
            return bool(found)

        if self.until(present, every_s=0.1) and kill(rng.choice(sorted(found))):
            self.struck.append(str(planned))

    def _has_begun(self, batch: int) -> bool:
        if batch == STARTING:
            return self.driver is not None
        return (self.folder / "ck" / "offsets" / str(batch)).exists()


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


def run_rounds(rounds: int, seed: int) -> int:
    """Play `rounds` rounds from `seed` on; the exit code of the command."""
    passed = sum(
        run_round(number, lambda line: print(line, flush=True)) for number in range(seed, seed + rounds)
    )
    print(f"{passed} passed, {rounds - passed} failed", flush=True)
    return 0 if passed == rounds else 1
