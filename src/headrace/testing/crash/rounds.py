"""Crash rounds: kill the host, a worker or the driver; nothing may be lost or doubled.

Input, query, victims and moments of a random round are pure functions of its seed; the machine adds its own
timing. A round of the matrix kills at a named moment. The driver is killed and started again until all
input is processed. Then output and state must equal the model's. A failed round keeps its folder.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from types import MappingProxyType

from headrace.checkpoint.steps import Moment
from headrace.clock import SYSTEM_CLOCK
from headrace.plan.lookahead import Prefetch
from headrace.plan.options import Bridge, CommitMode
from headrace.testing.crash.at import play_case
from headrace.testing.crash.input import write_input
from headrace.testing.crash.lane import BRIDGE, FORMAT, PREFETCH, STOPS, Lane, RoundFailed, describe
from headrace.testing.crash.matrix import Case, Victim, matrix
from headrace.testing.crash.plan import Plan, plan
from headrace.testing.crash.queries import Kind
from headrace.testing.crash.verdict import lane_strays, problems
from headrace.testing.crash.work.classes import to_read, to_write

Echo = Callable[[str], None]
Round = Plan | Case

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
WORTH_AN_ARCHIVE = 8  # rounds
_ARCHIVED_WITHIN_S = 300.0  # a JVM writes the archive when it ends


def play(lane: Lane, folder: Path, round_: Plan) -> list[str]:
    """Plays one random round in `folder`; returns the problems, empty if none."""
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
    """Plays a round; returns whether it passed, and the lines to print."""
    started_ms = SYSTEM_CLOCK.monotonic_ms()
    if isinstance(round_, Case):
        folder = lane.folder / f"case-{round_.number}"
        wrong = play_case(lane, folder, round_)
    else:
        folder = lane.folder / f"seed-{round_.seed}"
        wrong = play(lane, folder, round_)
    took = f"{(SYSTEM_CLOCK.monotonic_ms() - started_ms) / 1000:.1f} s"
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
        return True, [f"passed in {took}: {round_}"]
    options = f"{_options(round_)}{_driver_options(lane.environment)}"
    again = f"its files are in {folder}; repeat it with: headrace crash {options}"
    return False, [f"FAILED in {took}: {round_}", *(f"    {line}" for line in [*wrong, again])]


def _options(round_: Round) -> str:
    if isinstance(round_, Case):
        one = round_.combination
        return f"--matrix --moment {one.moment} --victim {one.victim} --commit {one.commit}"
    return f"--rounds 1 --seed {round_.seed} --kind {round_.kind} --commit {round_.commit}"


def _driver_options(environment: Mapping[str, str]) -> str:
    names = {"--bridge": BRIDGE, "--format": FORMAT, "--prefetch": PREFETCH}
    options = {option: environment.get(name) for option, name in names.items()}
    return "".join(f" {option} {value}" for option, value in options.items() if value is not None)


def driver_settings(
    bridge: Bridge | None = None, format_: str | None = None, prefetch: Prefetch | None = None
) -> dict[str, str]:
    """The environment that gives the drivers of a lane a bridge, a format of Spark's checkpoints, and
    hints."""
    settings = {BRIDGE: bridge, FORMAT: format_, PREFETCH: prefetch}
    return {name: value for name, value in settings.items() if value is not None}


def run_lane(rounds: Iterator[Round], echo: Echo, environment: Mapping[str, str] | None = None) -> int:
    """Plays all rounds; returns the number of failures. A lane that leaves files or processes is one."""
    lane = Lane(Path(tempfile.mkdtemp(prefix="headrace-crash-")), environment or {})
    failed = 0
    for round_ in rounds:
        passed, lines = _report(lane, round_)
        failed += not passed
        echo("\n".join(lines))
    left = [f"left running: {line}" for line in lane.close()] + lane_strays(lane.folder)
    if left:
        echo("\n".join([f"FAILED: the lane in {lane.folder} left something behind", *left]))
    if not failed and not left:
        shutil.rmtree(lane.folder, ignore_errors=True)
    return failed + bool(left)


def archived(folder: Path) -> dict[str, str]:
    """Plays an undisturbed round to record Spark's classes; returns the drivers' environment."""
    classes = folder / "spark.jsa"
    lane = Lane(folder / "lane", to_write(classes))
    lane.folder.mkdir()
    wrong = play(lane, lane.folder / "quiet", Plan(0, "chained", "sync", ()))
    for line in [*wrong, *lane.close(_ARCHIVED_WITHIN_S)]:
        _print(f"while archiving classes: {line}")
    return to_read(classes)


def run_round(round_: Plan, echo: Echo = print, settings: Mapping[str, str] = NO_SETTINGS) -> bool:
    """Plays a random round in its own lane; returns whether it passed."""
    return run_lane(iter([round_]), echo, settings) == 0


def run_cases(cases: Iterator[Case], echo: Echo = print, settings: Mapping[str, str] = NO_SETTINGS) -> bool:
    """Plays rounds of the matrix in one lane; returns whether they passed."""
    return run_lane(cases, echo, {STOPS: "1", **settings}) == 0


def run_rounds(
    rounds: int,
    seed: int,
    lanes: int = 1,
    kind: Kind | None = None,
    commit: CommitMode | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> int:
    """Plays `rounds` rounds from `seed` on in `lanes` parallel lanes; returns the command's exit code."""
    return _run([plan(number, kind, commit) for number in range(seed, seed + rounds)], lanes, settings)


def run_matrix(
    lanes: int = 1,
    moment: Moment | None = None,
    victim: Victim | None = None,
    commit: CommitMode | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> int:
    """Kills every victim at every moment in every mode; returns the command's exit code."""
    cases = list(matrix(moment, victim, commit))
    _print(f"{len(cases)} combinations")
    return _run(cases, lanes, {STOPS: "1", **settings})


def _run(rounds: Sequence[Round], lanes: int, environment: Mapping[str, str]) -> int:
    turns = iter(rounds)  # shared by all lanes
    classes = tempfile.TemporaryDirectory(prefix="headrace-classes-")
    with classes as folder, ThreadPoolExecutor(lanes) as pool:
        driver_environment = {
            **environment,
            **(archived(Path(folder)) if len(rounds) >= WORTH_AN_ARCHIVE else {}),
        }
        failed = sum(
            pool.map(
                run_lane, repeat(turns, lanes), repeat(_print, lanes), repeat(driver_environment, lanes)
            )
        )
    print(f"{max(0, len(rounds) - failed)} passed, {failed} failed", flush=True)
    return 0 if failed == 0 else 1


def _print(line: str) -> None:
    print(line, flush=True)
