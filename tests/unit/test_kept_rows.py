"""Protects kept rows: Arrow to words and back, and merges that keep every row, no hash in two chunks."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import TryAgain
from headrace.plan.spec import (
    Field,
    Holistic,
    HolisticResult,
    OperatorSpec,
    Window,
    WindowJoin,
    input_schema,
)
from headrace.row.run import Run
from headrace.store.append.merge import PackedRun, by_range, compact_kept, concatenated, packed, range_parts
from headrace.store.rows.kept_layout import (
    KeptLayout,
    by_time,
    ordered,
    pieces_of,
    rows_of,
    run_of,
    subset,
    time_bound,
    times_in,
    with_hashes,
)
from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment

TYPES = {"v0": "string", "v1": "decimal(20,3)", "v2": "double", "v3": "bool", "v4": "int16"}
SPEC = OperatorSpec(
    name="kept",
    keys=(Field("k0", "string", "a"), Field("k1", "int32", "b")),
    inputs=tuple(Field(name, kind, name) for name, kind in TYPES.items()),
    work=Holistic((HolisticResult("list", "v0", "string"),)),
    window=Window(1_000_000),
    emit="final",
    timed=True,
    delays_ms=(0,),
    partitions=1,
)
PAIRED = OperatorSpec(**{**SPEC.__dict__, "work": WindowJoin("inner", ("v0",), ("v1",))})


def batch_of(seed: int, n: int, spec: OperatorSpec = SPEC, keys: int = 7) -> pa.RecordBatch:
    """Random rows; one value in five is null, hashes are those of few keys."""
    rng = np.random.default_rng(seed)
    key = rng.integers(0, keys, n)
    columns = {
        "__hash": pa.array((key - keys // 2) * ((1 << 61) // keys), pa.int64()),
        "__time": pa.array(rng.integers(-5_000_000, 5_000_000, n)).cast(pa.timestamp("us", "UTC")),
        "__side": pa.array(rng.integers(0, 2, n), pa.int8()),
        "k0": pa.array([None if k == 0 else "key" * int(k) for k in key], pa.string()),
        "k1": pa.array(-key, pa.int32()),
        "v0": pa.array(["x" * int(x) for x in rng.integers(0, 9, n)], mask=rng.random(n) < 0.2),
        "v1": pa.array(rng.integers(-9, 9, n), pa.int32(), mask=rng.random(n) < 0.2).cast(
            pa.decimal128(20, 3), safe=False
        ),
        "v2": pa.array(rng.normal(size=n), mask=rng.random(n) < 0.2),
        "v3": pa.array(rng.random(n) < 0.5, mask=rng.random(n) < 0.2),
        "v4": pa.array(rng.integers(-9, 9, n), pa.int16(), mask=rng.random(n) < 0.2),
    }
    schema = input_schema(spec)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def counted(*batches: pa.RecordBatch) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("spec", [SPEC, PAIRED], ids=["plain", "join"])
@pytest.mark.parametrize("hashed", [False, True])
def test_rows_come_back_as_they_were(spec: OperatorSpec, hashed: bool) -> None:
    layout, batch = KeptLayout(spec, hashed), batch_of(1, 200, spec)
    assert rows_of(layout, pieces_of(layout, batch)).equals(batch)
    run = run_of(layout, batch)
    assert (np.diff(run.order.astype(object)) >= 0).all()
    assert counted(rows_of(layout, run)) == counted(batch)


def test_a_slice_of_a_batch_brings_its_own_strings_only() -> None:
    layout, batch = KeptLayout(SPEC), batch_of(2, 300).slice(100, 50)
    run = pieces_of(layout, batch)
    assert rows_of(layout, run).equals(batch)
    assert len(run.heap) < batch_of(2, 300).nbytes / 3
    some = np.array([3, 30, 7])
    assert rows_of(layout, subset(layout, run, some)).equals(batch.take(pa.array(some)))


def test_rows_ordered_by_time_know_their_hash() -> None:
    layout, batch = KeptLayout(SPEC, hashed=True), batch_of(3, 200)
    run = ordered(by_time(layout, pieces_of(layout, batch)))
    times = times_in(layout, run)
    assert (np.diff(times) >= 0).all()
    assert int(run.order[0]) == time_bound(int(times[0]))
    hashes = with_hashes(layout, run).order.view(np.int64)
    assert sorted(hashes.tolist()) == sorted(batch.column("__hash").to_pylist())


def sources(folder: Path, layout: KeptLayout, batches: list[pa.RecordBatch]) -> list[object]:
    """Every second batch on disk, every fourth in memory and packed."""
    made: list[object] = []
    for number, batch in enumerate(batches):
        run = run_of(layout, batch)
        run = packed(run, layout) if number % 4 == 1 else run
        made.append(run if number % 2 else (stored(folder / f"{number}.segment", layout, run), 5))
    return made


def stored(path: Path, layout: KeptLayout, run: Run) -> Segment:
    write_segment(path, layout.width, [(5, [run])], layout.variable_words, block_bytes=512, sync=False)
    return SegmentFile.open(path, layout.width, layout.variable_key_words)


@pytest.mark.parametrize("chunk_rows", [1, 40, 10_000])
def test_a_merge_keeps_every_row_and_no_hash_is_in_two_chunks(tmp_path: Path, chunk_rows: int) -> None:
    layout, batches = KeptLayout(SPEC), [batch_of(seed, 60) for seed in range(5)]
    chunks = list(by_range(sources(tmp_path, layout, batches), layout, chunk_rows))
    assert counted(*(rows_of(layout, chunk) for chunk in chunks)) == counted(*batches)
    seen = [set(chunk.order.tolist()) for chunk in chunks]
    assert sum(map(len, seen)) == len(set().union(*seen))
    assert all(len(hashes) == 1 for hashes in seen) == (chunk_rows == 1)
    assert len(chunks) == 1 or chunk_rows < 10_000


def test_parts_of_a_range_are_one_per_source(tmp_path: Path) -> None:
    layout, batches = KeptLayout(SPEC), [batch_of(seed, 60) for seed in range(3)]
    empty = run_of(layout, batch_of(9, 0))
    given = [empty, *sources(tmp_path, layout, batches)]
    for number, batch in enumerate(batches):
        runs = [parts[number + 1] for parts in range_parts(given, layout, 40)]
        assert counted(rows_of(layout, concatenated(runs, layout))) == counted(batch)
    assert list(range_parts([empty], layout, 40)) == []
    assert not any(map(len, *range_parts(given, layout, 40, low=1 << 62, high=1 << 63)))


def test_a_packed_run_is_the_same_run_over_a_heap_in_order() -> None:
    layout, batch = KeptLayout(SPEC), batch_of(4, 80)
    run = packed(run_of(layout, batch), layout)
    assert isinstance(run, PackedRun)
    assert counted(rows_of(layout, run)) == counted(batch)
    assert int(run.heap_ends[-1]) == len(run.heap)
    plain = KeptLayout(OperatorSpec(**{**SPEC.__dict__, "keys": SPEC.keys[1:], "inputs": SPEC.inputs[1:]}))
    assert not isinstance(packed(run_of(plain, batch), plain), PackedRun)


def test_compaction_keeps_live_sections_and_stops_when_told(tmp_path: Path) -> None:
    layout, batches = KeptLayout(SPEC), [batch_of(seed, 60) for seed in (0, 1)]
    inputs = [stored(tmp_path / f"in{n}", layout, run_of(layout, batch)) for n, batch in enumerate(batches)]
    path = tmp_path / "out"
    assert compact_kept(inputs, path, layout, lambda number: number != 5) is None
    stop = threading.Event()
    stop.set()
    with pytest.raises(TryAgain):
        compact_kept(inputs, path, layout, lambda _: True, stop)
    assert not path.exists()
    assert compact_kept(inputs, path, layout, lambda _: True, chunk_rows=30) is not None
    out = SegmentFile.open(path, layout.width, layout.variable_key_words)
    chunks = out.scan(5, 1000)
    assert counted(*(rows_of(layout, chunk) for chunk in chunks)) == counted(*batches)
