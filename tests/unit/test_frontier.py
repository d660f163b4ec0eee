"""Protects event time: frontiers never go back, and the watermark waits for every node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plan.frontier import TimeInputs, advance, held_back, watermark_ms

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


def test_a_node_behind_an_operator_counts_with_that_operators_watermark() -> None:
    chained = TimeInputs(("n",), through=("n",), upstream=(("u", 0), ("v", 0)))
    assert held_back(chained, [10], [None], [50, 40]) == [50], "the slower one, and the delay again"
    assert held_back(chained, [10], [None], [50, None]) == [None]


def test_a_node_that_comes_both_ways_counts_with_the_slower_one() -> None:
    both = TimeInputs(("n",), direct=("n",), through=("n",), upstream=(("u", 0),))
    assert held_back(both, [10], [100], [50]) == [60]
    assert held_back(both, [10], [55], [50]) == [55]
    assert held_back(both, [10], [None], [50]) == [None]


def test_a_node_that_no_operator_stands_above_is_not_held_back() -> None:
    mixed = TimeInputs(("n", "m"), direct=("m",), through=("n",), upstream=(("u", 0),))
    assert held_back(mixed, [10, 0], [None, 70], [None]) == [None, 70]


@given(st.lists(MAYBE, min_size=2, max_size=2), st.lists(MAYBE, min_size=1, max_size=3))
def test_the_watermark_never_passes_an_upstream_operator(
    seen: list[int | None], upstream: list[int | None]
) -> None:
    inputs = TimeInputs(("n", "m"), ("n",), ("n", "m"), tuple((str(n), 0) for n in range(len(upstream))))
    mark = watermark_ms(held_back(inputs, [3, 7], seen, upstream), [3, 7])
    assert mark is None or all(at is not None and mark <= at for at in upstream)


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
