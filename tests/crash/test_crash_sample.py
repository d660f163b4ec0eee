"""Protects exactly once under kill -9: three crash rounds over three stores, in the three commit modes."""

from __future__ import annotations

import pytest

from headrace.options import CommitMode
from headrace.testing.crash import run_round
from headrace.testing.crash_plan import plan
from headrace.testing.crash_queries import Kind

pytestmark = pytest.mark.crash

# Together they kill every kind of victim.
ROUNDS: list[tuple[int, Kind, CommitMode]] = [
    (9, "session", "async"),
    (22, "median", "upload"),
    (8, "chained", "sync"),
]


@pytest.mark.parametrize(("seed", "kind", "commit"), ROUNDS)
def test_killed_anywhere(seed: int, kind: Kind, commit: CommitMode) -> None:
    said: list[str] = []
    assert run_round(plan(seed, kind, commit), said.append), "\n".join(said)
