"""Protects the store of changing groups: what an epoch returns is the difference between a plain dictionary
before and after it, whatever is evicted, spilled, compacted, interrupted or reopened."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plan.columns import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from headrace.plan.spec import Accumulator, Field, OperatorSpec
from headrace.plan.work.changes.retracting import Retracting
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import Row, name_of, rows_of

SPEC = OperatorSpec(
    name="changes",
    keys=(Field("k0", "string"),),
    inputs=(Field("v0", "int64"),),
    work=Retracting((Accumulator("sum", "v0", "int64", "wrap"),), 0),
    window=None,
    emit="changelog",
    timed=False,
    delays_ms=(),
    partitions=1,
)
WIDE = 700  # keys of a wide epoch: more than a small share holds

epochs = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=40),
        st.sampled_from(["settle", "settle", "break", "reopen", "compact", "wide"]),
    ),
    max_size=12,
)


def expected(before: Counter[int], after: Counter[int]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for key in before | after:
        old, new = before[key], after[key]
        if old and new and old != new:
            rows += [(name_of(key), old, UPDATE_BEFORE), (name_of(key), new, UPDATE_AFTER)]
        elif old != new:
            rows.append((name_of(key), new, INSERT) if new else (name_of(key), old, DELETE))
    return sorted(rows, key=repr)


def changed(state: Counter[int], ops: list[tuple[int, bool]]) -> tuple[list[Row], Counter[int]]:
    """Rows of the epoch, and the counts after it; a delete needs a row that is there after the epoch."""
    after = state.copy()
    rows = []
    for key, is_new in ops:
        if is_new or after[key] > 0:
            after[key] += 1 if is_new else -1
            rows.append(Row(key, 0, 1 if is_new else -1))
    return rows[::-1], after  # deletes may arrive before their inserts


@settings(max_examples=60, deadline=None)
@given(epochs, st.sampled_from([24 << 10, 64 << 20]))
def test_changes_are_the_difference_of_two_dictionaries(
    steps: list[tuple[list[tuple[int, bool]], str]], share_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lab = StoreLab(SPEC, Path(folder), share_bytes)
        state: Counter[int] = Counter()
        for ops, step in steps:
            wide = [(key, True) for key in range(WIDE)] if step == "wide" else []
            rows, after = changed(state, [*ops, *wide])
            if step == "break":
                lab.broken(rows, None, len(ops) % 4)
                continue
            if step == "reopen":
                lab.reopen()
            assert lab.epoch(rows, None) == expected(state, after)
            state = after
            while step == "compact" and lab.compact():
                pass


def test_a_group_of_which_only_the_hidden_count_changes_has_not_changed(tmp_path: Path) -> None:
    """Rows below the largest value of an auction are no changes of it."""
    accumulators = (Accumulator("max", "v0", "int64"), Accumulator("count", None, "int64"))
    spec = replace(SPEC, work=Retracting(accumulators, 1, hides_rows=True))
    lab = StoreLab(spec, tmp_path)
    assert len(lab.epoch([Row(1, 0, 7), Row(2, 0, 7)], None)) == 2
    changes = lab.epoch([Row(1, 0, 5), Row(2, 0, 9), Row(1, 0, 7)], None)
    assert [(row[0], row[1], row[-1]) for row in changes] == [
        (name_of(2), 7, UPDATE_BEFORE),
        (name_of(2), 9, UPDATE_AFTER),
    ]


def test_a_compaction_of_all_segments_drops_groups_without_rows(tmp_path: Path) -> None:
    lab = StoreLab(SPEC, tmp_path)
    for number in range(12):
        lab.epoch([Row(key, 0, 1) for key in range(50)], None)
        lab.epoch([Row(key, 0, -1) for key in range(50 if number < 11 else 49)], None)
    while lab.compact():
        pass
    lab.reopen()
    assert lab.epoch([Row(49, 0, -1)], None) == [(name_of(49), 1, DELETE)]
    assert sum(segment.rows for segment in lab.store.segments) <= 1 + 4 * 50


def test_a_batch_larger_than_memory_is_compared_with_committed_rows(tmp_path: Path) -> None:
    lab = StoreLab(SPEC, tmp_path, 24 << 10)
    lab.epoch([Row(key, 0, 1) for key in range(WIDE)], None)
    lab.begin()
    lab.apply([Row(key, 0, 1 if key % 2 else -1) for key in range(WIDE)])
    assert getattr(lab.store, "spilled")  # noqa: B009
    write = lab.store.gather(None)
    emitted = rows_of(lab.store.results(None))
    lab.settle(write(), None)
    kept = Counter(dict.fromkeys(range(1, WIDE, 2), 2))
    assert emitted == expected(Counter(dict.fromkeys(range(WIDE), 1)), kept)
