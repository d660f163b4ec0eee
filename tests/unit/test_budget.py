"""Protects the memory limit: shares add up to no more than there is, and none lies idle beside a need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.store.base.budget import SPARE, TABLE_PART, MemoryBudget, shares

ALL, LEAST = 1 << 24, 1 << 20
NEEDS = st.lists(st.none() | st.integers(0, 2 * ALL), min_size=1, max_size=ALL // LEAST)


@given(NEEDS)
def test_shares_add_up_to_no_more_than_there_is(needs: list[int | None]) -> None:
    given_out = shares(ALL, needs, LEAST)
    assert sum(given_out) <= ALL
    assert all(share >= LEAST for share in given_out)


@given(NEEDS)
def test_who_needs_much_has_an_equal_part_at_least(needs: list[int | None]) -> None:
    for need, share in zip(needs, shares(ALL, needs, LEAST), strict=True):
        enough = ALL if need is None else max(LEAST, SPARE * need)
        assert share >= min(enough, ALL // len(needs))


@given(NEEDS)
def test_what_some_leave_goes_to_the_others(needs: list[int | None]) -> None:
    assert sum(shares(ALL, needs, LEAST)) > ALL - len(needs)


def test_more_partitions_than_memory_have_the_least_share_each() -> None:
    assert shares(2 * LEAST, [None, 5 * LEAST, 0], LEAST) == [LEAST] * 3


def test_a_partition_that_grows_takes_its_part_back() -> None:
    budget = MemoryBudget(int(ALL / TABLE_PART) + 1, LEAST)
    large, small = budget.join(), budget.join()
    assert large.limit_bytes == small.limit_bytes == ALL // 2, "nothing is known of either"
    large.uses(ALL // 2)
    small.uses(100)
    assert (large.limit_bytes, small.limit_bytes) == (ALL - LEAST, LEAST)
    small.uses(ALL // 4)
    assert large.limit_bytes == small.limit_bytes == ALL // 2
    for _ in range(40):
        small.batch_ended(100)
    assert (large.limit_bytes, small.limit_bytes) == (ALL - LEAST, LEAST), "its large batch is forgotten"
    small.close()
    assert large.limit_bytes == ALL
