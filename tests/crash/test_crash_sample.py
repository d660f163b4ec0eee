"""Protects exactly once under kill -9: three crash rounds over three stores, in the three commit modes, and
kills at named moments of a commit."""

from __future__ import annotations

import pytest

from headrace.checkpoint.steps import Moment
from headrace.options import CommitMode
from headrace.testing.crash import run_cases, run_round
from headrace.testing.crash_matrix import Victim, matrix
from headrace.testing.crash_plan import plan
from headrace.testing.crash_queries import Kind

pytestmark = pytest.mark.crash

# Together they kill every kind of victim.
ROUNDS: list[tuple[int, Kind, CommitMode]] = [
    (9, "session", "async"),
    (22, "median", "upload"),
    (8, "chained", "sync"),
]
MOMENTS: list[list[tuple[Moment, Victim, CommitMode]]] = [
    [(Moment.UPLOADING, "host", "async"), (Moment.PUBLISHING, "disk", "async")],
    [(Moment.RECOVERING, "worker", "upload"), (Moment.SEALED, "driver", "sync")],
]


@pytest.mark.parametrize(("seed", "kind", "commit"), ROUNDS)
def test_killed_anywhere(seed: int, kind: Kind, commit: CommitMode) -> None:
    said: list[str] = []
    assert run_round(plan(seed, kind, commit), said.append), "\n".join(said)


@pytest.mark.parametrize("moments", MOMENTS, ids=["behind", "more"])
def test_killed_at_a_moment(moments: list[tuple[Moment, Victim, CommitMode]]) -> None:
    said: list[str] = []
    cases = [case for moment in moments for case in matrix(*moment)]
    assert run_cases(iter(cases), said.append), "\n".join(said)
