"""Protects frames of processors: what a key's frame looks like, and how returned frames become columns."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.spark.processors.blocks import Block, Stage
from headrace.spark.processors.convert import RowConverter, pack
from headrace.spark.processors.cutting import part_of, stacked
from headrace.spark.processors.frames import FrameStyle

OUTPUT = T.StructType([T.StructField("id", T.LongType()), T.StructField("v", T.DoubleType())])
STAGE = Stage(("k0",), ("c0",), ("c0", "c1"), ("id", "v"), ("id",), (("k0", "c0"),))


def returned(*frames: Any) -> list[dict[str, Any]]:
    style = FrameStyle(("id", "v"), OUTPUT, "UTC")
    style.add(frames)
    return [row for batch in style.take() for row in batch.to_pylist()]


def test_every_frame_of_a_key_begins_at_zero() -> None:
    columns = [pa.array([1, 1, 2, 2, 2]), pa.array([1, 1, 2, 2, 2]), pa.array([5, 6, 7, 8, 9])]
    block = Block(STAGE, STAGE.with_keys(pa.RecordBatch.from_arrays(columns, ["__hash", "c0", "c1"])), None)
    style = FrameStyle(("id", "v"), OUTPUT, "UTC")
    spans = zip(block.starts, block.ends, strict=True)
    frames = [frame for start, end in spans for frame in style.input(block, start, end)]
    assert [list(frame.index) for frame in frames] == [[0, 1], [0, 1, 2]]
    assert [list(frame["v"]) for frame in frames] == [[5, 6], [7, 8, 9]]


@pytest.mark.parametrize(
    "second",
    [
        pd.DataFrame({"id": [2], "v": [7]}),
        pd.DataFrame({"v": [7], "id": [2]}),
        pd.DataFrame({"id": [2], "v": [7.0], "more": ["x"]}),
        pd.DataFrame({0: [2], 1: [7]}),
        pd.DataFrame({"id": [2], "v": pd.Series([7], dtype="Int64")}),
    ],
    ids=["same", "other order", "more columns", "by position", "nullable"],
)
def test_frames_of_any_columns_become_rows(second: pd.DataFrame) -> None:
    first = pd.DataFrame({"id": [1], "v": [0.5]})
    rows = [{"id": 1, "v": 0.5}, {"id": 2, "v": 7.0}]
    assert returned(first, second) == rows
    assert returned(second, first) == rows[::-1]


def test_a_null_of_another_key_changes_no_number() -> None:
    large = (1 << 60) + 1
    frames = [pd.DataFrame({"id": [number], "v": [0.0]}) for number in (large, float("nan"))]
    assert [row["id"] for row in returned(*frames)] == [large, None]


COLUMNS = {
    "whole": st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=2, max_size=2),
    "number": st.lists(st.floats(allow_nan=False), min_size=2, max_size=2),
    "flag": st.lists(st.booleans(), min_size=2, max_size=2),
    "text": st.lists(st.text(max_size=3) | st.none(), min_size=2, max_size=2),
    "at": st.lists(st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2100, 1, 1)), min_size=2, max_size=2),
}
LAYOUTS = st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, unique=True)


@settings(max_examples=100, deadline=None)
@given(st.lists(LAYOUTS, min_size=1, max_size=2, unique_by=tuple), st.booleans(), st.data())
def test_frames_are_stacked_as_pandas_joins_them(
    layouts: list[list[str]], is_built_by_column: bool, choose: st.DataObject
) -> None:
    frames = []
    for names in layouts * 2:
        values = {name: choose.draw(COLUMNS[name]) for name in names}
        frame = pd.DataFrame(None if is_built_by_column else values)
        for name in names if is_built_by_column else []:
            frame[name] = values[name]
        frames.append(frame)
    joined = stacked(frames)
    if joined is None:
        assert len(layouts) > 1 or "at" in layouts[0]
    else:
        assert_frame_equal(joined, pd.concat(frames, ignore_index=True))


def test_a_part_of_a_frame_is_a_frame() -> None:
    frame = pd.DataFrame({"id": [1, 2, 3], "name": ["a", None, "c"], "v": [0.5, 1.5, 2.5]})
    frame["at"] = pd.Timestamp("2030-01-01")
    part = part_of(frame, 1, 3)
    assert_frame_equal(part, frame[1:3].reset_index(drop=True))
    part["more"] = part["v"] * 2
    part.index.name = "row"
    assert list(frame.columns) == ["id", "name", "v", "at"]
    assert part_of(frame, 0, 2).index.name is None


def test_a_frame_may_have_no_time() -> None:
    output = T.StructType([T.StructField("at", T.TimestampType())])
    style = FrameStyle(("id",), output, "Europe/Berlin")
    noon = pd.Timestamp("2030-01-01 12:00:00")
    style.add([pd.DataFrame({"at": [None]}), pd.DataFrame({"at": [noon]}), pd.DataFrame({"at": [None]})])
    times = [at for batch in style.take() for at in batch.column("at").to_pylist()]
    assert [at if at is None else at.hour for at in times] == [None, 11, None]
    style.add([pd.DataFrame({"at": [None]})])
    assert [batch.column("at").to_pylist() for batch in style.take()] == [[None]]


def test_a_frame_without_a_column_is_refused_by_name() -> None:
    with pytest.raises(QueryError, match="v is missing"):
        returned(pd.DataFrame({"id": [1]}), pd.DataFrame({"id": [2]}))


def test_a_packed_key_follows_its_values() -> None:
    """The packed form of the last key is kept, but not where the key may change."""
    keys = T.StructType([T.StructField("k", T.ArrayType(T.LongType()))])
    rows, key = RowConverter(keys), ([1],)
    assert rows.packed(key) == pack([[1]])
    key[0].append(2)
    assert rows.packed(key) == pack([[1, 2]])
    plain, other = RowConverter(T.StructType([T.StructField("k", T.LongType())])), (1 << 70,)
    assert plain.packed((5,)) == plain.packed((5,)) == pack([5])
    assert plain.packed(other) == plain.packed(other) == pack([None])
