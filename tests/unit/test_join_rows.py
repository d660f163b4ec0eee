"""Protects what a join makes of whole groups: every pair once, outer rows without a partner once, null keys
never matched, in batches that stay within their limits."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.operators.window_join import join_of
from headrace.plan.spec import (
    ALONE,
    LEFT,
    RIGHT,
    TIME,
    Field,
    How,
    OperatorSpec,
    Window,
    WindowJoin,
    input_schema,
    output_schema,
)
from headrace.row.run import Run
from headrace.store.rows.groups import Groups, groups_of
from headrace.store.rows.kept_layout import KeptLayout, run_of, times_in

WIDTH = 10


def spec_of(how: How) -> OperatorSpec:
    left = (Field("v0", "string", "name"), Field(TIME, "timestamp", "ts"))
    right = (Field("v0", "string", "title"), Field("v1", "int64", "price"))
    return OperatorSpec(
        name="join-1",
        keys=(Field("k0", "int32", "k"),),
        inputs=(Field("v0", "string", "name"), Field("v1", "int64", "price")),
        work=WindowJoin(how, left, right),
        window=Window(WIDTH),
        emit="final",
        timed=True,
        delays_ms=(0, 0),
        partitions=1,
        store="aar",
    )


Row = tuple[int | None, int, int, str | None, int | None]  # key, side, time, text, number

rows = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1, 2, 3]),
        st.sampled_from([LEFT, RIGHT]),
        st.integers(0, 3 * WIDTH - 1),
        st.none() | st.text(max_size=3),
        st.none() | st.integers(-5, 5),
    ),
    max_size=40,
)


def chunk_of(spec: OperatorSpec, rows: list[Row]) -> tuple[KeptLayout, Run, Groups]:
    """The rows as a store would give them; hashes of different keys may be equal."""
    keys, sides, times, texts, numbers = zip(*rows, strict=True) if rows else ((),) * 5
    marked = [side + ALONE * (key is None) for key, side in zip(keys, sides, strict=True)]
    hashes = [(key or 0) % 2 for key in keys]
    columns = [hashes, times, marked, keys, texts, numbers]
    schema = input_schema(spec)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    layout = KeptLayout(spec)
    run = run_of(layout, pa.RecordBatch.from_arrays(arrays, schema=schema))
    starts = times_in(layout, run) // WIDTH * WIDTH
    return layout, *groups_of(layout, run, starts, starts + WIDTH)


def model(how: str, rows: list[Row]) -> Counter[tuple[Any, ...]]:
    """The join by definition."""
    left = [row for row in rows if row[1] == LEFT]
    right = [row for row in rows if row[1] == RIGHT]
    out: Counter[tuple[Any, ...]] = Counter()
    matched: set[int] = set()
    for (i, a), (j, b) in product(enumerate(left), enumerate(right)):
        if a[0] is not None and a[0] == b[0] and a[2] // WIDTH == b[2] // WIDTH:
            out[a[0], a[2] // WIDTH * WIDTH, a[3], a[2], b[3], b[4]] += 1
            matched |= {i, ~j}
    if how in ("left", "full"):
        out.update(
            (a[0], a[2] // WIDTH * WIDTH, a[3], a[2], None, None)
            for i, a in enumerate(left)
            if i not in matched
        )
    if how in ("right", "full"):
        out.update(
            (b[0], b[2] // WIDTH * WIDTH, None, None, b[3], b[4])
            for j, b in enumerate(right)
            if ~j not in matched
        )
    return out


def rows_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> Counter[tuple[Any, ...]]:
    table = pa.Table.from_batches(batches, schema)
    columns = []
    for column in table.columns:
        is_time = pa.types.is_timestamp(column.type)
        columns.append((column.cast(pa.int64()) if is_time else column).to_pylist())
    out: Counter[tuple[Any, ...]] = Counter()
    for key, start, end, *rest in zip(*columns, strict=True):
        assert end == start + WIDTH
        out[(key, start, *rest)] += 1
    return out


@settings(max_examples=150, deadline=None)
@given(
    rows,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from([1, 3, 1000]),
    st.sampled_from([1, 8, 1000]),
)
def test_a_join_equals_its_definition(entries, how, pairs_max, bytes_max):
    spec = spec_of(how)
    layout, run, groups = chunk_of(spec, entries)
    batches = list(join_of(layout, pairs_max, bytes_max)(run, groups))
    assert all(0 < part.num_rows <= pairs_max for part in batches)
    assert rows_of(batches, output_schema(spec)) == model(how, entries)


@pytest.mark.parametrize(("text", "limit", "rows"), [("x", 1 << 16, 300), ("x" * 100_000, 200, 40)])
def test_a_key_with_many_pairs_comes_in_bounded_batches(text, limit, rows):
    spec = spec_of("inner")
    entries: list[Row] = [
        (1, side, number % WIDTH, text, 1) for number in range(rows) for side in (LEFT, RIGHT)
    ]
    layout, run, groups = chunk_of(spec, entries)
    pairs = 0
    for part in join_of(layout)(run, groups):
        assert part.num_rows <= limit
        pairs += part.num_rows
    assert pairs == rows * rows
