"""Protects the way from Arrow into state words and back: every type, nulls, slices, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import TYPES, array, comparable, plain, values

from headrace.errors import QueryError
from headrace.kernels import reference
from headrace.plan.spec import (
    HASH,
    TIME,
    WINDOW_END,
    WINDOW_START,
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    Window,
    output_schema,
)
from headrace.plan.types import arrow_type
from headrace.row.layout import LENGTH_MAX, RowLayout
from headrace.row.run import Run
from headrace.store.rows.arrow import array_of, column_of, probe_of, results_of


def keyed_by(*kinds: str, window: Window | None = None) -> OperatorSpec:
    keys = tuple(Field(f"k{i}", kind) for i, kind in enumerate(kinds))
    counted = (Accumulator("count", None, "int64"),)
    return OperatorSpec("op", keys, (), Fold(counted), window, "changes", window is not None, (), 1)


def with_hash(**columns: pa.Array) -> pa.RecordBatch:
    n = len(next(iter(columns.values())))
    return pa.record_batch({HASH: pa.array(np.arange(n) - 1), **columns})


def whole(layout: RowLayout, probe: Run) -> Run:
    """The probe as rows whose accumulators are empty."""
    words = np.zeros((len(probe), layout.width), np.uint64)
    words[:, : layout.key_width] = probe.words
    return Run(probe.order, words, probe.heap)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), kinds=st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
def test_keys_come_back_from_any_slice(data: st.DataObject, kinds: list[str]) -> None:
    rows = data.draw(st.lists(st.tuples(*(st.none() | values(kind) for kind in kinds)), max_size=20))
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    layout = RowLayout(keyed_by(*kinds))
    columns = {f"k{i}": array(kind, [row[i] for row in rows]) for i, kind in enumerate(kinds)}
    batch = with_hash(**columns).slice(start, stop - start)
    probe = probe_of(layout, batch)
    assert probe.order.view(np.int64).tolist() == batch.column(HASH).to_pylist()
    got: list[list[Any]] = [[] for _ in kinds]
    for out in results_of(layout, whole(layout, probe), None, 7):
        out.validate(full=True)
        assert out.schema == output_schema(layout.spec)
        assert out.num_rows <= 7
        for i, kind in enumerate(kinds):
            got[i] += map(comparable, plain(kind, out.column(f"k{i}")))
    assert got == [[comparable(row[i]) for row in rows[start:stop]] for i in range(len(kinds))]


@pytest.mark.parametrize("kind", TYPES)
def test_equal_values_have_equal_words_and_null_is_zero(kind: str) -> None:
    # The second array's nulls lie over what were values.
    items = [None, sample(kind), None]
    full = array(kind, [sample(kind)] * 3)
    buffers = full.buffers()
    covered = pa.Array.from_buffers(full.type, 3, [pa.py_buffer(b"\x02"), *buffers[1:]])
    layout = RowLayout(keyed_by(kind))
    one, two = (probe_of(layout, with_hash(k0=column)) for column in (array(kind, items), covered))
    assert one.words[:, 0].tolist() == two.words[:, 0].tolist() == [1, 0, 1]
    assert not two.words[[0, 2], 1:].any()
    if kind in ("string", "binary"):
        assert reference.value_at(two.words[1, 1], two.heap) == reference.value_at(
            one.words[1, 1], one.heap
        )
    else:
        assert (one.words == two.words).all()


def sample(kind: str) -> Any:
    samples = {"bool": True, "string": "héllo", "binary": b"\xff\0", "float": -1.5, "double": -1.5}
    return (
        reference.scaled(-7, 2 if "2" in kind else -1)
        if kind.startswith("decimal")
        else samples.get(kind, -3)
    )


def test_words_are_sign_extended_and_floats_keep_their_width() -> None:
    assert column_of(pa.array([-2], pa.int8()), "int8").words.view(np.int64).tolist() == [[-2]]
    assert column_of(array("date", [-2]), "date").words.view(np.int64).tolist() == [[-2]]
    assert column_of(pa.array([-1.5], pa.float32()), "float").words.tolist() == [[0xBFC00000]]
    assert column_of(pa.array([True, False, None]), "bool").words[:2].tolist() == [[1], [0]]


def test_other_carriers_of_a_type_are_taken() -> None:
    elsewhere = pa.array([5], pa.timestamp("us", tz="Europe/Berlin"))
    assert column_of(elsewhere, "timestamp").words.tolist() == [[5]]
    large = column_of(pa.array(["ab"], pa.large_string()), "string")
    assert reference.value_at(large.words[0, 0], large.heap) == b"ab"
    assert column_of(pa.array([3], pa.int32()), "int64").words.tolist() == [[3]]


def test_several_string_keys_share_one_heap() -> None:
    layout = RowLayout(keyed_by("string", "int64", "binary"))
    texts, blobs = pa.array(["a", "", None, "dd"]), pa.array([b"", b"x", b"yy", None])
    batch = with_hash(k0=texts, k1=pa.array([1, 2, 3, 4]), k2=blobs)
    probe = probe_of(layout, batch)
    read = [[reference.value_at(word, probe.heap) for word in probe.words[:, at]] for at in (1, 3)]
    assert read == [[b"a", b"", b"", b"dd"], [b"", b"x", b"yy", b""]]
    assert probe.words[:, 0].tolist() == [0, 0, 1, 4]


def test_nulls_of_more_than_64_keys() -> None:
    layout = RowLayout(keyed_by(*["int64"] * 70))
    items = [None if i % 3 == 0 else i for i in range(70)]
    batch = with_hash(**{f"k{i}": pa.array([value], pa.int64()) for i, value in enumerate(items)})
    out = next(results_of(layout, whole(layout, probe_of(layout, batch)), None, 5))
    assert [column[0].as_py() for column in out.columns[:70]] == items


def test_a_value_too_long_for_state_is_refused() -> None:
    layout = RowLayout(keyed_by("binary"))
    fits = with_hash(k0=pa.array([b"x" * LENGTH_MAX]))
    assert int(probe_of(layout, fits).words[0, 1]) == LENGTH_MAX
    with pytest.raises(QueryError, match="16,777,216 bytes"):
        probe_of(layout, with_hash(k0=pa.array([b"x" * (LENGTH_MAX + 1)])))


def test_window_bounds_are_columns() -> None:
    spec = keyed_by("int64", window=Window(10))
    layout = RowLayout(spec)
    batch = with_hash(k0=pa.array([4, 5]), **{TIME: array("timestamp", [20, 21])})
    out = next(results_of(layout, whole(layout, probe_of(layout, batch)), 20, 5))
    assert plain("timestamp", out.column(WINDOW_START)) == [20, 20]
    assert plain("timestamp", out.column(WINDOW_END)) == [30, 30]
    with pytest.raises(ValueError, match="window"):
        list(results_of(layout, whole(layout, probe_of(layout, batch)), None, 5))


def test_results_of_read_only_runs() -> None:
    """Runs that come from mapped files cannot be written to."""
    layout = RowLayout(keyed_by("string"))
    run = whole(layout, probe_of(layout, with_hash(k0=pa.array(["a", "bc"]))))
    run.words.flags.writeable = False
    assert next(results_of(layout, run, None, 5)).column("k0").to_pylist() == ["a", "bc"]


def test_all_null_array_without_data() -> None:
    nothing = pa.nulls(3, pa.string())
    column = column_of(nothing, "string")
    assert not column.words.any()
    assert array_of("string", column.words, 0, column.heap, column.valid).to_pylist() == [None] * 3
    assert arrow_type("string") == nothing.type
