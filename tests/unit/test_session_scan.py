"""Protects the looks at all sessions of a table: they see what NumPy sees."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.kernels.sessions.scan import LATEST, ending, living


@pytest.mark.parametrize("count", [0, 1, 40, 50])
def test_a_scan_sees_what_numpy_sees(count: int) -> None:
    times = np.random.default_rng(7).integers(-9, 9, (50, 3))
    rows, lasts, firsts = times.view(np.uint64), times[:count, 2], times[:count, 1]
    assert ending(rows, count, 2, -3, 4).tolist() == np.flatnonzero((lasts > -3) & (lasts <= 4)).tolist()
    alive = firsts[lasts > 0]
    expected = len(alive), alive.min(initial=LATEST), alive.sum()
    assert living(rows, count, 2, 0, 1) == expected
