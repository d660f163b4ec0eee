"""Protects event time: frontiers never go back, and the watermark waits for every node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.frontier import advance, watermark_ms

MAYBE = st.none() | st.integers(-(10**6), 10**6)


def test_an_unknown_node_holds_the_watermark_back() -> None:
    assert watermark_ms([100, None], [10, 10]) is None
    assert watermark_ms([], []) is None
    assert watermark_ms([100, 50], [10, 5]) == 45
    assert watermark_ms([0], [10]) == -10


def test_a_batch_that_saw_nothing_changes_nothing() -> None:
    assert advance([5, None], [None, None]) == [5, None]
    assert advance([5, None], [3, 4]) == [5, 4]
    assert advance([0], [None]) == [0]


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="1 event times for 2"):
        advance([1, 2], [1])


@given(st.lists(st.lists(MAYBE, min_size=2, max_size=2), max_size=20))
def test_frontiers_are_running_maxima(batches: list[list[int | None]]) -> None:
    frontiers: list[int | None] = [None, None]
    for count, seen in enumerate(batches, 1):
        frontiers = advance(frontiers, seen)
        for node in (0, 1):
            known = [batch[node] for batch in batches[:count] if batch[node] is not None]
            assert frontiers[node] == max(known, default=None)
