"""Protects exactly once under kill -9: three crash rounds over three stores, in the three commit modes, and
kills at named moments of a commit."""

from __future__ import annotations

import pytest

from headrace.checkpoint.steps import Moment
from headrace.plan.options import CommitMode
from headrace.testing.crash.matrix import Victim, matrix
from headrace.testing.crash.plan import plan
from headrace.testing.crash.queries import Kind
from headrace.testing.crash.rounds import driver_settings, run_cases, run_round

pytestmark = pytest.mark.crash

FORMAT_2 = driver_settings("jvm", "2")  # Spark's commit log names the versions

# Together they kill every kind of victim.
ROUNDS = [
    pytest.param(9, "session", "async"),
    pytest.param(22, "median", "upload", marks=pytest.mark.long),
    pytest.param(8, "chained", "sync", marks=pytest.mark.long),
    pytest.param(13, "processor", "async", marks=pytest.mark.long),
    pytest.param(14, "processor", "sync", marks=pytest.mark.long),
    pytest.param(15, "q4", "async", marks=pytest.mark.long),
    pytest.param(16, "q9", "sync", marks=pytest.mark.long),
    pytest.param(17, "q18", "upload", marks=pytest.mark.long),
    pytest.param(18, "q20", "async", marks=pytest.mark.long),
]
Moments = list[tuple[Moment, Victim, CommitMode]]
BEHIND: Moments = [(Moment.UPLOADING, "host", "async"), (Moment.PUBLISHING, "disk", "async")]
MORE: Moments = [(Moment.RECOVERING, "worker", "upload"), (Moment.SEALED, "driver", "sync")]
MOMENTS = [pytest.param(BEHIND, id="behind"), pytest.param(MORE, id="more", marks=pytest.mark.long)]


@pytest.mark.parametrize(("seed", "kind", "commit"), ROUNDS)
def test_killed_anywhere(seed: int, kind: Kind, commit: CommitMode) -> None:
    report: list[str] = []
    assert run_round(plan(seed, kind, commit), report.append), "\n".join(report)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "kind", "commit"), [(9, "session", "async"), (3, "join", "sync")])
def test_killed_anywhere_with_versions_in_sparks_commit_log(
    seed: int, kind: Kind, commit: CommitMode
) -> None:
    report: list[str] = []
    assert run_round(plan(seed, kind, commit), report.append, FORMAT_2), "\n".join(report)


@pytest.mark.long
def test_killed_at_a_moment_with_versions_in_sparks_commit_log() -> None:
    report: list[str] = []
    cases = [case for moment in (*BEHIND, *MORE) for case in matrix(*moment)]
    assert run_cases(iter(cases), report.append, FORMAT_2), "\n".join(report)


@pytest.mark.parametrize("moments", MOMENTS)
def test_killed_at_a_moment(moments: Moments) -> None:
    report: list[str] = []
    cases = [case for moment in moments for case in matrix(*moment)]
    assert run_cases(iter(cases), report.append), "\n".join(report)
