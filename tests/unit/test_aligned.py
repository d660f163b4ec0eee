"""Protects combining ordered runs at once: the same rows as a table makes of them, and no key mistaken."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from test_panes import LAYOUT

from headrace.kernels.tables import align
from headrace.row.run import Run
from headrace.store.tables.aligned import aligned
from headrace.store.tables.table import Table

PAST = int(align.PAST)
NO_HEAP = np.empty(0, np.uint8)


def run_of(rows: list[tuple[int, int, int]]) -> Run:
    """A run of (hash, key, count)."""
    words = np.zeros((len(rows), LAYOUT.width), np.uint64)
    words[:, LAYOUT.key_width - 1] = [key for _, key, _ in rows]
    words[:, -1] = [count for _, _, count in rows]
    return Run(np.array([at for at, _, _ in rows], np.uint64), words, NO_HEAP)


def counts(run: Run) -> list[tuple[int, int]]:
    """Key and count of each row."""
    columns = run.words[:, LAYOUT.key_width - 1], run.words[:, -1]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def numbered(parts: list[list[int]]) -> tuple[list[list[int]], int]:
    places = [np.array([*part, PAST], np.uint64) for part in parts]
    starts: npt.NDArray[np.int64] = np.cumsum([0, *map(len, places)], dtype=np.int64)
    ids = np.full(starts[-1], -1)
    count = align.number(np.concatenate(places), starts, ids)
    return [ids[a : b - 1].tolist() for a, b in pairwise(starts)], count


hash_sets = st.lists(
    st.sets(st.one_of(st.integers(0, 12), st.integers(PAST - 3, PAST)), max_size=12), min_size=1, max_size=9
)


@given(hash_sets)
def test_rows_are_numbered_by_their_hash(hashes: list[set[int]]) -> None:
    places = {at: number for number, at in enumerate(sorted(set().union(*hashes)))}
    parts = [sorted(one) for one in hashes]
    assert numbered(parts) == ([[places[at] for at in part] for part in parts], len(places))


def test_rows_of_one_hash_are_numbered_one_by_one() -> None:
    assert numbered([[5, 5, 7], [5], [5, 5, 5]]) == ([[0, 1, 3], [0], [0, 1, 2]], 4)
    assert numbered([[PAST, PAST], [], [1, PAST]]) == ([[1, 2], [], [0, 1]], 3)
    assert numbered([[]]) == ([[]], 0)


@given(hash_sets)
def test_the_result_is_what_a_table_makes_of_the_runs(hashes: list[set[int]]) -> None:
    runs = [
        run_of([(at, at % 1000 + 1, number + 1) for at in sorted(one)]) for number, one in enumerate(hashes)
    ]
    together, table = aligned(runs, LAYOUT), Table(LAYOUT)
    for run in runs:
        table.absorb(run)
    assert together is not None
    assert together.order.tolist() == sorted(set().union(*hashes))
    assert counts(together) == counts(table.whole_run())


def test_keys_that_share_a_hash_are_told_apart_or_not_combined() -> None:
    first, second = (5, 1, 10), (5, 2, 20)
    together = aligned([run_of([first, second]), run_of([first, second]), run_of([first])], LAYOUT)
    assert together is not None
    assert counts(together) == [(1, 30), (2, 40)]
    assert aligned([run_of([first, second]), run_of([second])], LAYOUT) is None
    assert aligned([run_of([first]), run_of([second, first])], LAYOUT) is None
    assert aligned([run_of([(PAST, 1, 1)]), run_of([(PAST, 2, 1)])], LAYOUT) is None


def test_nothing_comes_to_nothing() -> None:
    for runs in ([], [run_of([])], [run_of([]), run_of([])]):
        together = aligned(runs, LAYOUT)
        assert together is not None
        assert len(together) == 0
