"""Protects the state of vectorised functions: one row per key that is replaced, or rows that are added.
Random batches and blocks run against plain dicts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.work.cells import CELL_FIELD, VALUE_FIELD, Cells, Variable
from headrace.spark.processors import blocks, states
from headrace.spark.processors.blocks import Stage
from headrace.spark.processors.tester import MemoryTalk
from headrace.spark.processors.vector.task import VectorPlan

KEY = T.StructType([T.StructField("id", T.LongType())])
STATE = T.StructType([T.StructField("v", T.LongType())])
OUTPUT = T.StructType([T.StructField("id", T.LongType()), T.StructField("seen", T.StringType())])
WIRE = pa.schema([("__hash", pa.int64()), ("k0", pa.int64()), (CELL_FIELD.name, pa.int64())])
STAGE = Stage(("k0",), ("c0",), ("c0", "c1"), ("id", "v"), ("id",), (("k0", "c0"),))

Batch = list[tuple[int, int]]


def talk() -> MemoryTalk:
    return MemoryTalk(WIRE.append(pa.field(VALUE_FIELD.name, pa.binary())))


def run(state: MemoryTalk, func: Any, batch: Batch, *, appends: bool) -> dict[int, str]:
    """The output of one batch by key."""
    work = Cells((Variable("state", "list" if appends else "value", STATE.json()),))
    plan = VectorPlan("op", func, work, STAGE, KEY, STATE, OUTPUT, False, "UTC", appends)
    ids, values = (
        pa.array(column, pa.int64()) for column in ([k for k, _ in batch], [v for _, v in batch])
    )
    hashes = pa.array([hash(k * 7919) << 20 for k, _ in batch], pa.int64())
    rows = pa.RecordBatch.from_arrays([hashes, ids, values], names=["__hash", "c0", "c1"])
    parts = list(plan.task(state, None).run(iter([rows])))
    return {row["id"]: row["seen"] for part in parts for row in part.to_pylist()}


def seen(rows: pa.Table, state: pa.Table) -> pa.Table:
    """For each key of `rows` its state before, then its rows."""
    both = pa.concat_tables([state, rows])
    ids = sorted(set(rows["id"].to_pylist()))
    listed = [[v for k, v in zip(*both.to_pydict().values(), strict=True) if k == one] for one in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "seen": pa.array(list(map(str, listed)))})


def adds(rows: pa.Table, state: pa.Table) -> Any:
    return rows.filter(pa.array([v % 3 > 0 for v in rows["v"].to_pylist()], pa.bool_())), seen(rows, state)


def replaces(rows: pa.Table, state: pa.Table) -> Any:
    last = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    kept = {key: value for key, value in last.items() if value % 3}
    new = pa.table(
        [pa.array(list(kept), pa.int64()), pa.array(list(kept.values()), pa.int64())], ["id", "v"]
    )
    return new, seen(rows, state)


batches = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), min_size=1, max_size=40), max_size=5
)


@settings(max_examples=60, deadline=None)
@given(batches, st.sampled_from([4, 1 << 14]))
def test_added_rows_stay_in_their_order(given_batches: list[Batch], block_rows: int) -> None:
    state, model = talk(), dict[int, list[int]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", block_rows)
        patch.setattr(states, "LIST_CHUNK", 3)
        for batch in given_batches:
            expected = {
                key: str(model.get(key, []) + [v for k, v in batch if k == key]) for key, _ in batch
            }
            assert run(state, adds, batch, appends=True) == expected
            for key, value in batch:
                if value % 3:
                    model.setdefault(key, []).append(value)


@settings(max_examples=60, deadline=None)
@given(batches, st.sampled_from([4, 1 << 14]))
def test_a_replaced_row_is_the_last_one(given_batches: list[Batch], block_rows: int) -> None:
    state, model = talk(), dict[int, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", block_rows)
        for batch in given_batches:
            before = {key: [model[key]] if key in model else [] for key, _ in batch}
            expected = {key: str(before[key] + [v for k, v in batch if k == key]) for key, _ in batch}
            assert run(state, replaces, batch, appends=False) == expected
            for key, value in dict(batch).items():
                model.pop(key, None)
                if value % 3:
                    model[key] = value


def twice(rows: pa.Table, state: pa.Table) -> Any:
    return rows, seen(rows, state)


def test_two_rows_of_a_key_need_the_mark() -> None:
    with pytest.raises(QueryError, match=r"2 rows of 1 keys(.|\n)*@hr.append"):
        run(talk(), twice, [(1, 1), (1, 2)], appends=False)
    assert run(talk(), twice, [(1, 1), (1, 2)], appends=True) == {1: "[1, 2]"}


def elsewhere(rows: pa.Table, state: pa.Table) -> Any:
    other = pa.table({"id": pa.array([99], pa.int64()), "v": pa.array([1], pa.int64())})
    return other, seen(rows, state)


@pytest.mark.parametrize("appends", [False, True])
def test_state_of_other_keys_is_refused(appends: bool) -> None:
    with pytest.raises(QueryError, match=r"key \(99,\)"):
        run(talk(), elsewhere, [(1, 1)], appends=appends)
