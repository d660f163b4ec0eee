"""Protects the bag store under top-N: changes are the difference of plain sorted lists before and after an
epoch, whatever is evicted, spilled, interrupted, compacted or reopened, with and without retractions."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plan.columns import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from headrace.plan.spec import Field, OperatorSpec, input_schema
from headrace.plan.work.changes.top import Order, Top
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import name_of, rows_of

N = 3
WIDE = 300
Bags = dict[int, list[tuple[int, str]]]
Op = tuple[int, int, bool]

ops = st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 6), st.booleans()), max_size=30)
steps = st.lists(
    st.tuples(ops, st.sampled_from(["settle", "settle", "break", "reopen", "compact", "wide"])), max_size=10
)


def spec_of(*, changing: bool) -> OperatorSpec:
    inputs = (Field("v0", "int64"), Field("v1", "string"), Field("v2", "int64"))
    return OperatorSpec(
        name="top",
        keys=(Field("k0", "string"),),
        inputs=inputs,
        work=Top(N, (Order("v0"),), "row_number", True, "v2" if changing else None),
        window=None,
        emit="changelog",
        timed=False,
        delays_ms=(),
        partitions=1,
    )


def text(value: int) -> str:
    return "x" * (value + 3) * 2


def batch_of(spec: OperatorSpec, changes: list[Op]) -> pa.RecordBatch:
    columns = [
        pa.array([(key % 61) << 40 for key, _, _ in changes], pa.int64()),
        pa.array([name_of(key) for key, _, _ in changes], pa.string()),
        pa.array([value for _, value, _ in changes], pa.int64()),
        pa.array([text(value) for _, value, _ in changes], pa.string()),
        pa.array([1 if is_new else -1 for _, _, is_new in changes], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(spec))


def ranked(bags: Bags) -> dict[tuple[int, int], tuple[int, str]]:
    places = {}
    for key, rows in bags.items():
        for place, row in enumerate(sorted(rows, key=lambda one: (-one[0], one[1]))[:N], 1):
            places[key, place] = row
    return places


def expected(before: Bags, after: Bags, sign: int) -> list[tuple[Any, ...]]:
    old, new = ranked(before), ranked(after)
    rows = []
    for key, place in old | new:
        was, now = old.get((key, place)), new.get((key, place))
        if was == now:
            continue
        kinds = (UPDATE_BEFORE, UPDATE_AFTER) if was and now else (DELETE, INSERT)
        for row, kind in ((was, kinds[0]), (now, kinds[1])):
            rows += [] if row is None else [(name_of(key), *row, sign, place, kind)]
    return sorted(rows, key=repr)


def changed(bags: Bags, requests: list[Op], *, changing: bool) -> tuple[list[Op], Bags]:
    after: Bags = defaultdict(list, {key: list(rows) for key, rows in bags.items()})
    done: list[Op] = []
    for key, value, is_new in requests:
        row = (value, text(value))
        if is_new or not changing:
            after[key].append(row)
            done.append((key, value, True))
        elif row in after[key]:
            after[key].remove(row)
            done.append((key, value, False))
    return done[::-1], after


@settings(max_examples=50, deadline=None)
@given(steps, st.booleans(), st.sampled_from([24 << 10, 64 << 20]), st.booleans())
def test_changes_are_the_difference_of_sorted_lists(
    epochs: list[tuple[list[Op], str]], changing: bool, share_bytes: int, hinted: bool
) -> None:
    spec = spec_of(changing=changing)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as threads:
        lab = StoreLab(spec, Path(folder), share_bytes)
        bags: Bags = {}
        for one, step in epochs:
            wide = [(key, key % 5, True) for key in range(WIDE)] if step == "wide" else []
            done, after = changed(bags, [*one, *wide], changing=changing)
            if step == "reopen":
                lab.reopen()
            if hinted:
                lab.store.look_ahead(threads)
                lab.store.expect(batch_of(spec, done))
            lab.begin()
            for at in range(0, len(done), 64):
                lab.store.apply(batch_of(spec, done[at : at + 64]))
            if step == "break":
                lab.reopen()
                continue
            write = lab.store.gather(None)
            emitted = rows_of(lab.store.results(None))
            lab.settle(write(), None)
            assert emitted == expected(bags, after, 0 if changing else 1)
            bags = after
            while step == "compact" and lab.compact():
                pass


def test_bags_come_ahead_of_their_rows(tmp_path: Path) -> None:
    spec = spec_of(changing=False)
    lab = StoreLab(spec, tmp_path, 24 << 10)
    with ThreadPoolExecutor(1) as threads:
        lab.store.look_ahead(threads)
        for start in (*range(0, 600, 60), 0):
            ops = [(key, 1, True) for key in range(start, start + 60)]
            hashes = pa.array([key << 40 for key, _, _ in ops], pa.int64())  # that differ
            batch = batch_of(spec, ops).set_column(0, "__hash", hashes)
            lab.store.expect(batch)
            lab.begin()
            lab.store.apply(batch)
            write = lab.store.gather(None)
            rows_of(lab.store.results(None))
            lab.settle(write(), None)
        assert lab.store.ahead_counts().used > 0
        assert lab.store.waited().hits > 0
