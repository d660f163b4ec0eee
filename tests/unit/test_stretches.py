"""Protects stretches of a batch's rows: they are those of a plain walk over the rows of each key."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.sessions.stretches import stretches_of

GAP = 5
Row = tuple[int, int, int]  # group, time, how long it lasts

rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40), st.sampled_from([0, 0, 3, 20])), min_size=1
)


def walked(given_rows: list[Row]) -> list[tuple[int, int, int, list[int]]]:
    """Group, first time, last end and rows of each stretch."""
    stretches: list[tuple[int, int, int, list[int]]] = []
    for group in sorted({row[0] for row in given_rows}):
        mine = [(time, lasting, at) for at, (of, time, lasting) in enumerate(given_rows) if of == group]
        for time, lasting, at in sorted(mine, key=lambda row: (row[0], row[2])):
            last = stretches[-1] if stretches and stretches[-1][0] == group else None
            if last is None or time > last[2] + GAP:
                stretches.append((group, time, time + lasting, [at]))
            else:
                stretches[-1] = (group, last[1], max(last[2], time + lasting), [*last[3], at])
    return stretches


@given(given_rows=rows)
def test_stretches_are_those_of_a_plain_walk(given_rows: list[Row]) -> None:
    groups, times, lasting = (np.array(column, np.int64) for column in zip(*given_rows, strict=True))
    order = np.lexsort((times, groups)).astype(np.int64)
    of_row, of, begins, ends, counts = stretches_of(order, groups, times, times + lasting, GAP)
    expected = walked(given_rows)
    assert list(zip(of.tolist(), begins.tolist(), ends.tolist(), strict=True)) == [s[:3] for s in expected]
    assert counts.tolist() == [len(s[3]) for s in expected]
    for number, (*_, members) in enumerate(expected):
        assert all(of_row[row] == number for row in members)
