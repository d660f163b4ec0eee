"""Protects sides that take turns: each has one process and one session, which is closed at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from headrace.bench.common.turns import Turn


@contextmanager
def session(closed: Path) -> Iterator[list[int]]:
    yield []
    closed.touch()


def calls(so_far: list[int], number: int) -> tuple[int, list[int]]:
    so_far.append(number)
    return os.getpid(), so_far


def refuses(_so_far: list[int]) -> None:
    raise ValueError("no")


def test_a_side_keeps_its_session_in_its_own_process_until_the_end(tmp_path: Path) -> None:
    with Turn(partial(session, tmp_path / "a")) as first, Turn(partial(session, tmp_path / "b")) as second:
        one, _ = first.call(calls, 1)
        other, theirs = second.call(calls, 2)
        again, ours = first.call(calls, 3)
        assert len({one, other, os.getpid()}) == 3
        assert (again, ours, theirs) == (one, [1, 3], [2])
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()


def test_a_session_is_closed_when_a_call_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), Turn(partial(session, tmp_path / "a")) as side:
        side.call(refuses)
    assert (tmp_path / "a").exists()


def says(_so_far: list[int]) -> str | None:
    return os.environ.get("HEADRACE_SIDE")


def test_a_side_has_variables_of_its_own(tmp_path: Path) -> None:
    given = Turn(partial(session, tmp_path / "a"), {"HEADRACE_SIDE": "a"})
    with given as one, Turn(partial(session, tmp_path / "b")) as other:
        assert (one.call(says), other.call(says), says([])) == ("a", None, None)
