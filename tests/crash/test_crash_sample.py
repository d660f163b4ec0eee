"""Protects exactly once under kill -9: three crash rounds, one for each kind of victim."""

from __future__ import annotations

import pytest

from headrace.testing.crash import run_round

pytestmark = pytest.mark.crash

SEEDS = (9, 22, 8)  # together they kill every kind of victim in every kind of query


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_anywhere(seed: int) -> None:
    said: list[str] = []
    assert run_round(seed, said.append), "\n".join(said)
