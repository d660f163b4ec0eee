"""Protects the three answers about a version on shared storage: an attempt, none, and not asked.

A store in memory stays unless storage is known to hold a newer attempt. A log left behind is recovered only
if storage lacks its attempt and everything newer.
"""

from __future__ import annotations

import pytest

from headrace.format.names import Attempt
from headrace.host.state.stored import Missing, Stored, Unknown, overtakes, precedes

OURS = Attempt(5, 2, 3)
OLDER, NEWER_ATTEMPT, NEWER_RUN = Attempt(5, 1, 9), Attempt(5, 2, 4), Attempt(5, 3, 1)


@pytest.mark.parametrize("stored", [Unknown.NOT_ASKED, Missing.ON_STORAGE, OLDER, OURS])
def test_only_a_newer_attempt_overtakes(stored: Stored | Unknown) -> None:
    assert not overtakes(stored, OURS)


@pytest.mark.parametrize("stored", [NEWER_ATTEMPT, NEWER_RUN])
def test_a_newer_attempt_or_run_overtakes(stored: Stored) -> None:
    assert overtakes(stored, OURS)
    assert not precedes(stored, OURS)


def test_storage_without_the_attempt_precedes_it() -> None:
    assert precedes(Missing.ON_STORAGE, OURS)
    assert precedes(OLDER, OURS)
    assert not precedes(OURS, OURS)
