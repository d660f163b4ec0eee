"""Protects windows that are one group: they leave the store in pieces, and the function gets them whole."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from headrace.operators.open import open_store
from headrace.plan.spec import (
    TIME,
    WINDOW_START,
    Field,
    Grouped,
    OperatorSpec,
    Window,
    input_schema,
)
from headrace.spark.task.apply_calls import groups_in
from headrace.store.append import kept_store
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind, Sections
from headrace.store.base.share import FixedShare
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.testing.contracts.store_lab import FlushedBy

WIDTH_US, SLIDE_US = 30, 12
SPEC = OperatorSpec(
    name="all",
    keys=(),
    inputs=(Field("v0", "int64", "amount"), Field("v1", "string", "name")),
    work=Grouped(),
    window=Window(WIDTH_US, 0, SLIDE_US),
    emit="final",
    timed=True,
    delays_ms=(0,),
    partitions=1,
)
Row = tuple[int, int]  # event time, a number that no other row has


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = [
        pa.array([42] * len(rows), pa.int64()),
        pa.array([time for time, _ in rows], pa.timestamp("us", tz="UTC")),
        pa.array([number for _, number in rows], pa.int64()),
        pa.array([f"row {number}" for _, number in rows]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(SPEC))


def store_in(folder: Path, name: Literal["aar", "range"], share: int) -> Store:
    numbers = itertools.count()

    def flush(kind: FileKind, sections: Sections) -> Segment:
        path, shape = folder / f"{next(numbers)}.segment", kind.shape
        write_segment(path, shape.width, sections, shape.variable_words, sync=False)
        return SegmentFile.open(path, shape.width, shape.variable_key_words, kind=kind.name)

    spec = OperatorSpec.from_json(SPEC.to_json().replace('"store": "rmw"', f'"store": "{name}"'))
    assert spec.store == name
    return open_store(spec, FixedShare(share), FlushedBy(flush), [], None, 0)


@pytest.mark.parametrize("share", [1 << 9, 1 << 20])
@pytest.mark.parametrize("name", ["aar", "range"])
def test_a_window_comes_in_pieces_and_is_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Literal["aar", "range"], share: int
) -> None:
    monkeypatch.setattr(kept_store, "CHUNK_BYTES_MIN", 1 << 9)
    monkeypatch.setattr(kept_store, "READ_ROWS", 7)
    store, drawn, fed = store_in(tmp_path, name, share), random.Random(5), list[Row]()
    number, seen, pieces = itertools.count(), dict[int, list[Row]](), 0
    for epoch in range(6):
        rows = [(drawn.randrange(10 * epoch, 10 * epoch + 15), next(number)) for _ in range(40)]
        fed += rows
        store.apply(batch_of(rows))
        watermark_us = 10 * epoch
        sealed = store.gather(watermark_us)()
        batches = list(store.results(watermark_us))
        pieces += len(batches)
        for table in groups_in(iter(batches)):
            (start,) = set(table.column(WINDOW_START).cast(pa.int64()).to_pylist())
            times = table.column(TIME).cast(pa.int64()).to_pylist()
            assert times == sorted(times)
            assert start not in seen, "a window is one group"
            seen[start] = list(zip(times, table.column("v0").to_pylist(), strict=True))
            assert table.column("v1").to_pylist() == [f"row {number}" for _, number in seen[start]]
        store.settle([*store.segments, *sealed], watermark_us)
    assert 4 <= len(seen) <= pieces / 2
    for start, rows in seen.items():
        assert sorted(rows) == sorted(row for row in fed if start <= row[0] < start + WIDTH_US)
