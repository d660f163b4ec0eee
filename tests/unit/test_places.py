"""Protects picking rows by hash: every row of every wanted hash, once, in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.sessions.rows import places

few = st.integers(0, 9) | st.integers(0, 2**64 - 1)


@given(values=st.lists(few, max_size=40), wanted=st.sets(few, max_size=12))
def test_places_are_those_of_a_scan(values: list[int], wanted: set[int]) -> None:
    hashes = np.array(sorted(values), np.uint64)
    matches = places(hashes, np.array(sorted(wanted), np.uint64))
    assert matches.tolist() == [at for at, hashed in enumerate(sorted(values)) if hashed in wanted]
