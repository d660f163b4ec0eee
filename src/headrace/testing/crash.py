"""Crash rounds: kill the host, a worker or the driver at random moments; nothing may be lost or doubled.

A round is a pure function of its seed as far as input, query, victims and moments go; the machine's own
timing does the rest. Its driver runs until all input is processed, is killed on the way and started
again; then output and state must equal the model's. A round that fails keeps its folder.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from headrace.testing.crash_classes import to_read, to_write
from headrace.testing.crash_input import write_input
from headrace.testing.crash_lane import Lane, RoundFailed
from headrace.testing.crash_plan import Plan, plan
from headrace.testing.crash_verdict import lane_strays, problems

Say = Callable[[str], None]

WORTH_AN_ARCHIVE = 8  # rounds


def play(lane: Lane, folder: Path, round_: Plan) -> list[str]:
    """Run one round in `folder`; what went wrong, or nothing."""
    write_input(folder / "in", round_.seed)
    (folder / "round.json").write_text(json.dumps({"kind": round_.kind, "seed": round_.seed}))
    lane.begin(folder)
    rng = random.Random(round_.seed)
    try:
        for planned in round_.kills:
            lane.strike(planned, rng)
        lane.until(lambda: False, every_s=0.05)
        return problems(folder, round_)
    except RoundFailed as error:
        return [str(error)]


def _report(lane: Lane, seed: int) -> tuple[bool, list[str]]:
    """Play the round of a seed; whether it passed, and what to say of it."""
    round_, begun = plan(seed), time.monotonic()
    folder = lane.folder / f"seed-{seed}"
    wrong = play(lane, folder, round_)
    took = f"{time.monotonic() - begun:.1f} s"
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
        return True, [f"passed in {took}: {round_}"]
    again = f"its files are in {folder}; repeat it with: headrace crash --rounds 1 --seed {seed}"
    return False, [f"FAILED in {took}: {round_}", *(f"    {line}" for line in [*wrong, again])]


def run_lane(seeds: Iterator[int], say: Say, environment: Mapping[str, str] | None = None) -> int:
    """Play rounds until the seeds are used up; how many failed, a lane that leaves something included."""
    lane = Lane(Path(tempfile.mkdtemp(prefix="headrace-crash-")), environment or {})
    failed = 0
    for seed in seeds:
        passed, lines = _report(lane, seed)
        failed += not passed
        say("\n".join(lines))
    left = [f"left running: {line}" for line in lane.close()] + lane_strays(lane.folder)
    if left:
        say("\n".join([f"FAILED: the lane in {lane.folder} left something behind", *left]))
    if not failed and not left:
        shutil.rmtree(lane.folder, ignore_errors=True)
    return failed + bool(left)


def archived(folder: Path) -> dict[str, str]:
    """Play a round that nobody disturbs, to learn which classes Spark loads; what drivers then need."""
    classes = folder / "spark.jsa"
    lane = Lane(folder / "lane", to_write(classes))
    lane.folder.mkdir()
    wrong = play(lane, lane.folder / "quiet", Plan(0, "chained", ()))
    for line in [*wrong, *lane.close()]:
        _print(f"while archiving classes: {line}")
    return to_read(classes)


def run_round(seed: int, say: Say = print) -> bool:
    """Play the round of a seed in a lane of its own; whether it passed."""
    return run_lane(iter([seed]), say) == 0


def run_rounds(rounds: int, seed: int, lanes: int = 1) -> int:
    """Play `rounds` rounds from `seed` on, `lanes` side by side; the exit code of the command."""
    seeds = iter(range(seed, seed + rounds))  # the lanes take turns at it
    classes = tempfile.TemporaryDirectory(prefix="headrace-classes-")
    with classes as folder, ThreadPoolExecutor(lanes) as pool:
        environment = archived(Path(folder)) if rounds >= WORTH_AN_ARCHIVE else {}
        failed = sum(
            pool.map(run_lane, repeat(seeds, lanes), repeat(_print, lanes), repeat(environment, lanes))
        )
    print(f"{max(0, rounds - failed)} passed, {failed} failed", flush=True)
    return 0 if failed == 0 else 1


def _print(line: str) -> None:
    print(line, flush=True)
