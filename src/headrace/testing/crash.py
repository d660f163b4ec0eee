"""Crash rounds: kill the host, a worker or the driver; nothing may be lost or doubled.

A random round is a pure function of its seed as far as input, query, victims and moments go; the machine's
own timing does the rest. A round of the matrix kills at a named moment. The driver runs until all input
is processed, is killed on the way and started again; then output and state must equal the model's. A
round that fails keeps its folder.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from headrace.checkpoint.steps import Moment
from headrace.options import CommitMode
from headrace.testing.crash_at import play_case
from headrace.testing.crash_classes import to_read, to_write
from headrace.testing.crash_input import write_input
from headrace.testing.crash_lane import STOPS, Lane, RoundFailed, describe
from headrace.testing.crash_matrix import Case, Victim, matrix
from headrace.testing.crash_plan import Plan, plan
from headrace.testing.crash_queries import Kind
from headrace.testing.crash_verdict import lane_strays, problems

Say = Callable[[str], None]
Round = Plan | Case

WORTH_AN_ARCHIVE = 8  # rounds
_ARCHIVED_WITHIN_S = 300.0  # a JVM writes it when it ends


def play(lane: Lane, folder: Path, round_: Plan) -> list[str]:
    """Run one random round in `folder`; what went wrong, or nothing."""
    write_input(folder / "in", round_.seed, round_.files)
    describe(folder, round_.kind, round_.commit)
    lane.begin(folder)
    rng = random.Random(round_.seed)
    try:
        for planned in round_.kills:
            lane.strike(planned, rng)
        lane.until(lambda: False, every_s=0.05)
        return problems(folder, round_)
    except RoundFailed as error:
        return [str(error)]
    finally:
        lane.end()


def _report(lane: Lane, round_: Round) -> tuple[bool, list[str]]:
    """Play a round; whether it passed, and what to say of it."""
    begun = time.monotonic()
    if isinstance(round_, Case):
        folder = lane.folder / f"case-{round_.number}"
        wrong = play_case(lane, folder, round_)
    else:
        folder = lane.folder / f"seed-{round_.seed}"
        wrong = play(lane, folder, round_)
    took = f"{time.monotonic() - begun:.1f} s"
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
        return True, [f"passed in {took}: {round_}"]
    again = f"its files are in {folder}; repeat it with: headrace crash {_options(round_)}"
    return False, [f"FAILED in {took}: {round_}", *(f"    {line}" for line in [*wrong, again])]


def _options(round_: Round) -> str:
    if isinstance(round_, Case):
        one = round_.combination
        return f"--matrix --moment {one.moment} --victim {one.victim} --commit {one.commit}"
    return f"--rounds 1 --seed {round_.seed} --kind {round_.kind} --commit {round_.commit}"


def run_lane(rounds: Iterator[Round], say: Say, environment: Mapping[str, str] | None = None) -> int:
    """Play rounds until there are no more; how many failed, a lane that leaves something included."""
    lane = Lane(Path(tempfile.mkdtemp(prefix="headrace-crash-")), environment or {})
    failed = 0
    for round_ in rounds:
        passed, lines = _report(lane, round_)
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
    wrong = play(lane, lane.folder / "quiet", Plan(0, "chained", "sync", ()))
    for line in [*wrong, *lane.close(_ARCHIVED_WITHIN_S)]:
        _print(f"while archiving classes: {line}")
    return to_read(classes)


def run_round(round_: Plan, say: Say = print) -> bool:
    """Play a random round in a lane of its own; whether it passed."""
    return run_lane(iter([round_]), say) == 0


def run_cases(cases: Iterator[Case], say: Say = print) -> bool:
    """Play rounds of the matrix in a lane of their own; whether they passed."""
    return run_lane(cases, say, {STOPS: "1"}) == 0


def run_rounds(
    rounds: int, seed: int, lanes: int = 1, kind: Kind | None = None, commit: CommitMode | None = None
) -> int:
    """Play `rounds` rounds from `seed` on, `lanes` side by side; the exit code of the command."""
    return _run([plan(number, kind, commit) for number in range(seed, seed + rounds)], lanes, {})


def run_matrix(
    lanes: int = 1,
    moment: Moment | None = None,
    victim: Victim | None = None,
    commit: CommitMode | None = None,
) -> int:
    """Kill every victim at every moment in every mode; the exit code of the command."""
    cases = list(matrix(moment, victim, commit))
    _print(f"{len(cases)} combinations")
    return _run(cases, lanes, {STOPS: "1"})


def _run(rounds: Sequence[Round], lanes: int, environment: Mapping[str, str]) -> int:
    turns = iter(rounds)  # lanes take them in turns
    classes = tempfile.TemporaryDirectory(prefix="headrace-classes-")
    with classes as folder, ThreadPoolExecutor(lanes) as pool:
        told = {**environment, **(archived(Path(folder)) if len(rounds) >= WORTH_AN_ARCHIVE else {})}
        failed = sum(pool.map(run_lane, repeat(turns, lanes), repeat(_print, lanes), repeat(told, lanes)))
    print(f"{max(0, len(rounds) - failed)} passed, {failed} failed", flush=True)
    return 0 if failed == 0 else 1


def _print(line: str) -> None:
    print(line, flush=True)
