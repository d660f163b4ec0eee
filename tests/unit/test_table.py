"""Protects the in-memory table: for any operator, however batches, commits and evictions follow each other,
it holds what a plain dict says, hands out each dirty row once, and keeps to its memory limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_model import Model, rows_of, specs

from headrace.kernels import reference
from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
)
from headrace.row.layout import RowLayout
from headrace.store.rows.arrow import probe_of, results_of
from headrace.store.tables.table import Table

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(data=st.data(), spec=specs(), hashes=st.sampled_from([1, 3, 1 << 62]))
def test_table_is_a_dict_of_folds(data: st.DataObject, spec: OperatorSpec, hashes: int) -> None:
    model = Model(spec, hashes)
    steps = data.draw(st.lists(st.sampled_from(["add", "commit", "commit and evict", "evict"]), max_size=5))
    for step in ["add", *steps, "add"]:
        if step == "add":
            model.add(data.draw(rows_of(spec)))
        if "commit" in step:
            model.commit()
        if "evict" in step:
            before = model.resident()
            dropped = model.table.evict(data.draw(st.just(0) | st.integers(0, model.table.nbytes + 1)))
            assert len(before) - len(model.resident()) == dropped
            assert model.touched <= model.resident()
    model.commit()
    run = model.table.whole_run()
    assert model.results(run) == model.expected(model.resident())


def counting(key: str = "int64", *more: Accumulator) -> OperatorSpec:
    inputs = tuple(Field(a.input, a.type) for a in more if a.input)
    kept = (Accumulator("count", None, "int64"), *more)
    return OperatorSpec("op", (Field("k0", key),), inputs, Fold(kept), None, "changes", False, (), 1)


def keyed(keys: np.ndarray, **more: pa.Array) -> pa.RecordBatch:
    hashes = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return pa.record_batch({"__hash": pa.array(hashes), "k0": pa.array(keys), **more})


def add(table: Table, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    ids, fresh = table.upsert(probe_of(table.layout, batch))
    table.accumulate(ids, batch)
    return ids, fresh


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "ab", "ba", "c" * 30]), max_size=9), max_size=4))
def test_upsert_equals_reference_where_all_hashes_collide(batches: list[list[str]]) -> None:
    table, known = Table(RowLayout(counting("string"))), dict[Hashable, int]()
    for keys in batches:
        hashes = pa.array([9] * len(keys), pa.int64())
        batch = pa.record_batch({"__hash": hashes, "k0": pa.array(keys, "string")})
        ids, fresh = table.upsert(probe_of(table.layout, batch))
        assert (ids.tolist(), fresh.tolist()) == reference.upsert(known, keys)


def test_many_keys_grow_the_table_in_one_batch() -> None:
    table = Table(RowLayout(counting()))
    keys = np.random.default_rng(1).integers(0, 20_000, 50_000)
    growth = table.growth_bytes(len(keys))
    before = table.nbytes
    ids, fresh = add(table, keyed(keys))
    assert table.nbytes <= before + growth
    assert len(table) == len(fresh) == len(np.unique(keys))
    batch = pa.Table.from_batches(results_of(table.layout, table.whole_run(), None, 7_000))
    counts = dict(zip(batch["k0"].to_pylist(), batch["a0"].to_pylist(), strict=True))
    assert counts == Counter(keys.tolist())
    assert (table.upsert(probe_of(table.layout, keyed(keys)))[0] == ids).all()


def test_evict_drops_the_longest_untouched_first_and_never_dirty_rows() -> None:
    table = Table(RowLayout(counting()))
    for start in (0, 1000, 2000):
        add(table, keyed(np.arange(start, start + 1000)))
        table.settle()
    add(table, keyed(np.arange(0, 500)))  # touches the oldest rows again
    goal = table.nbytes // 2
    dropped = table.evict(goal)
    kept = set(table.whole_run().words[:, 1].tolist())
    assert 0 < table.nbytes <= goal
    assert len(table) == 3000 - dropped == len(kept)
    assert set(range(500)) <= kept
    assert not kept & set(range(500, 1000))
    assert not kept & set(range(1000, 2000)) or set(range(2000, 3000)) <= kept
    assert table.evict(0) == len(kept) - 500
    assert table.dirty_count == len(table) == 500


def test_rows_that_move_stay_dirty_and_what_they_leave_is_empty() -> None:
    table = Table(RowLayout(counting()))
    for start in (0, 1000):
        table.settle()
        add(table, keyed(np.arange(start, start + 1000)))
    table.evict(0, room_rows=500)
    assert sorted(table.dirty_run().words[:, 1].tolist()) == list(range(1000, 2000))
    add(table, keyed(np.arange(5000, 5500)))
    assert table.whole_run().words[:, -1].tolist() == [1] * 1500
    assert table.evict(0) == 0


def test_evict_leaves_the_room_that_was_asked_for() -> None:
    table = Table(RowLayout(counting()))
    add(table, keyed(np.arange(10_000)))
    table.settle()
    goal = table.nbytes // 2
    table.evict(goal, room_rows=1000)
    nbytes = table.nbytes
    assert nbytes <= goal
    assert table.growth_bytes(1000) == 0
    add(table, keyed(np.arange(50_000, 51_000)))
    assert table.nbytes == nbytes


def test_evicted_rows_can_be_filled_again() -> None:
    layout = RowLayout(counting("int64", Accumulator("max", "i0", "string")))
    table = Table(layout)
    batch = keyed(np.arange(100), i0=pa.array([f"value {i}" for i in range(100)]))
    add(table, batch)
    run = table.dirty_run()
    table.settle()
    assert table.evict(0) == 100
    ids, fresh = table.upsert(probe_of(layout, batch))
    assert len(fresh) == 100
    by_key = run.words[np.argsort(run.words[:, 1])]
    table.fill(ids, by_key, run.heap)
    table.accumulate(ids, batch)
    out = pa.Table.from_batches(results_of(layout, table.whole_run(), None, 1000)).sort_by("k0")
    assert out["a0"].to_pylist() == [2] * 100
    assert out["a1"].to_pylist() == [f"value {i}" for i in range(100)]


def test_replaced_strings_do_not_pile_up_in_the_heap() -> None:
    layout = RowLayout(counting("int64", Accumulator("max", "i0", "string")))
    table = Table(layout)
    for length in range(1, 400):
        add(table, keyed(np.arange(20), i0=pa.array(["m" * length] * 20)))
    live = table.whole_run()
    assert len(live.heap) == 20 * 399
    assert table.nbytes < 6 * live.nbytes
    assert pa.Table.from_batches(results_of(layout, live, None, 99))["a1"].to_pylist() == ["m" * 399] * 20


def test_a_row_is_dirty_once_per_epoch() -> None:
    table = Table(RowLayout(counting()))
    add(table, keyed(np.array([1, 1, 2])))
    add(table, keyed(np.array([2, 3])))
    assert table.dirty_count == 3
    table.settle()
    add(table, keyed(np.array([3, 3])))
    assert table.dirty_run().words[:, 1].tolist() == [3]
    assert len(table.whole_run()) == 3


@pytest.mark.parametrize("bytes_max", [0, 1 << 40])
def test_an_empty_table_is_fine(bytes_max: int) -> None:
    table = Table(RowLayout(counting("string")))
    assert table.evict(bytes_max) == 0
    assert len(table.whole_run()) == len(table.dirty_run()) == 0
    assert list(results_of(table.layout, table.whole_run(), None, 10)) == []
