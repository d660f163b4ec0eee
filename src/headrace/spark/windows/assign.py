"""Calls a custom window's function in Spark's worker, and turns its answer into bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import QueryError

BOUNDS_TYPE = "array<struct<start: timestamp, end: timestamp>>"
_INSTANT = pa.timestamp("us", tz="UTC")
_BOUNDS = pa.struct([("start", _INSTANT), ("end", _INSTANT)])
_HINT = "return (starts, ends), a struct array with start and end, or a list array of such structs"


def assigning(assign: Callable[..., Any]) -> Callable[..., pa.Array]:
    """The function as Spark calls it: event times and columns to lists of bounds."""

    def bounds(*arrays: pa.Array) -> pa.Array:
        times = arrays[0].cast(_INSTANT)
        listed = lists_of(assign(times, *arrays[1:]), len(times))
        check(listed, times)
        return listed

    return bounds


def lists_of(answer: Any, rows: int) -> pa.ListArray:
    """The answer as a list of bounds per row."""
    try:
        if isinstance(answer, tuple) and len(answer) == 2:
            parts = [_array(part).cast(_INSTANT) for part in answer]
            missing = pc.or_(pc.is_null(parts[0]), pc.is_null(parts[1]))
            answer = pa.StructArray.from_arrays(parts, fields=list(_BOUNDS), mask=missing)
        answer = _array(answer)
        if pa.types.is_struct(answer.type):
            present = pc.is_valid(answer)
            sizes = pa.concat_arrays([pa.array([0], pa.int64()), pc.cast(present, pa.int64())])
            offsets = pc.cast(pc.cumulative_sum(sizes), pa.int32())
            answer = pa.ListArray.from_arrays(offsets, answer.filter(present))
        listed = answer.cast(pa.list_(_BOUNDS))
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise QueryError(f"a custom window's function returned no bounds: {error}", hint=_HINT) from error
    if len(listed) != rows:
        raise QueryError(f"a custom window has {len(listed)} bounds for {rows} rows", hint=_HINT)
    return listed


def check(listed: pa.ListArray, times: pa.Array) -> None:
    """Raises unless every window contains the time of its row."""
    flat = listed.flatten()
    of_row = times.take(pc.list_parent_indices(listed))
    starts, ends = flat.field("start"), flat.field("end")
    inside = pc.and_(pc.less_equal(starts, of_row), pc.less(of_row, ends))
    wrong = pc.index(pc.fill_null(inside, False), False).as_py()
    if wrong >= 0:
        raise QueryError(
            f"a row at {of_row[wrong]} got the window from {starts[wrong]} to {ends[wrong]}",
            hint="a window contains its row: start <= time < end",
        )


def _array(part: Any) -> pa.Array:
    return part.combine_chunks() if isinstance(part, pa.ChunkedArray) else pa.array(part)
