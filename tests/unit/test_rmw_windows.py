"""Protects a store of very many windows: its memory stays within its share, and no row or key is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.plan.spec import (
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    Window,
    input_schema,
)
from headrace.store.base.files import FileKind, Sections
from headrace.store.base.share import FixedShare
from headrace.store.fold.rmw import RmwStore
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.store.tables.table import Table
from headrace.testing.contracts.store_lab import FlushedBy

WIDTH_US, WINDOWS, SHARE = 1_000_000, 80, 32 << 10
SPEC = OperatorSpec(
    name="counts",
    keys=(Field("k0", "string", "key"),),
    inputs=(Field("v0", "int64", "amount"),),
    work=Fold((Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64"))),
    window=Window(WIDTH_US),
    emit="changes",
    timed=True,
    delays_ms=(),
    partitions=1,
)


def store_in(folder: Path) -> RmwStore:
    numbers = itertools.count()

    def flush(kind: FileKind, sections: Sections) -> Segment:
        path = folder / f"{next(numbers)}.segment"
        write_segment(path, kind.shape.width, sections, kind.shape.variable_words, sync=False)
        return SegmentFile.open(path, kind.shape.width, kind.shape.variable_key_words)

    return RmwStore(SPEC, FixedShare(SHARE), FlushedBy(flush), [], None)


def rows_of(windows: range, keys: int = 2) -> pa.RecordBatch:
    """One row of 1 for each key of each window."""
    at = [(window, key) for window in windows for key in range(keys)]
    columns = [
        pa.array(np.array([key << 40 for _, key in at], np.int64)),
        pa.array([window * WIDTH_US for window, _ in at], pa.timestamp("us", tz="UTC")),
        pa.array([f"key-{key}" for _, key in at]),
        pa.array([1] * len(at), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(SPEC))


def commit(store: RmwStore, watermark_us: int | None = None) -> list[int]:
    """Seal the epoch; the counts that it gave out."""
    sealed = store.gather(watermark_us)()
    counts = [count for batch in store.results(watermark_us) for count in batch.column("a0").to_pylist()]
    store.settle([*store.segments, *sealed], watermark_us)
    return counts


def table_bytes(store: RmwStore) -> int:
    return sum(table.nbytes for table in store.tables.values())


@pytest.fixture
def store(tmp_path: Path) -> RmwStore:
    return store_in(tmp_path)


def test_windows_without_rows_in_memory_take_none(store: RmwStore) -> None:
    for window in range(WINDOWS):
        store.apply(rows_of(range(window, window + 1)))
        commit(store)
        assert table_bytes(store) <= SHARE
    assert store.keys == 2 * WINDOWS


@pytest.mark.parametrize("rounds", [2, 3])
def test_parked_windows_come_back_with_their_rows(store: RmwStore, rounds: int) -> None:
    for number in range(1, rounds + 1):
        store.apply(rows_of(range(WINDOWS)))
        assert commit(store) == [number] * (2 * WINDOWS)
        assert store.keys == 2 * WINDOWS


def test_windows_spilled_in_a_batch_are_touched_again_in_it(store: RmwStore) -> None:
    store.apply(rows_of(range(WINDOWS)))
    store.apply(rows_of(range(WINDOWS), keys=1))
    assert store.spilled
    assert commit(store) == [2, 1] * WINDOWS
    assert store.keys == 2 * WINDOWS


def test_closed_windows_leave_nothing_behind(store: RmwStore) -> None:
    store.apply(rows_of(range(WINDOWS)))
    commit(store)
    store.apply(rows_of(range(WINDOWS)))  # looks rows up, so indexes are in memory
    watermark_us = (WINDOWS - 1) * WIDTH_US
    store.spec = replace(SPEC, emit="final")
    assert sum(batch.num_rows for batch in store.results(watermark_us)) == 2 * (WINDOWS - 1)
    commit(store, watermark_us)
    assert store.slices == {watermark_us}
    assert all(set(segment.indexes) <= {watermark_us} for segment in store.segments)
    assert store.keys == 2


def test_memory_is_what_tables_and_indexes_take(store: RmwStore) -> None:
    for number in range(4):
        store.apply(rows_of(range(number * 10, WINDOWS)))
        indexes = sum(
            index.nbytes
            for segment in (*store.segments, *store.spilled)
            for index in segment.indexes.values()
        )
        assert store.memory_bytes == table_bytes(store) + indexes
        commit(store)


def test_the_work_for_a_window_does_not_grow_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    measure: Callable[[Table], int] = Table.nbytes.fget
    monkeypatch.setattr(Table, "nbytes", property(lambda table: sizes.append(1) or measure(table)))
    store = store_in(tmp_path)
    store.share = FixedShare(1 << 30)
    store.apply(rows_of(range(WINDOWS)))
    assert len(sizes) < 20 * WINDOWS
