"""Protects what is measured from a JVM of the side before that does not end."""

from __future__ import annotations

from subprocess import PIPE, Popen

import pytest

from headrace.bench.common import session


def test_a_jvm_that_ends_by_itself_is_left_alone() -> None:
    jvm = Popen(["cat"], stdin=PIPE)
    session.end(jvm)
    assert jvm.returncode == 0


def test_a_jvm_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "EXIT_WITHIN_S", 0.05)
    jvm = Popen(["sleep", "600"], stdin=PIPE)
    session.end(jvm)
    assert jvm.returncode == -9
