"""Protects the calls of a user's function in the worker: one call per group however batches cut it, columns
and keys as PySpark shows them, results checked, errors that name operator, key and window."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.spark.task.apply_calls import GroupCalls, Shown, groups_in

UTC = pa.timestamp("us", tz="UTC")
ZONE = "America/New_York"
PLACE = T.StructType([T.StructField("x", T.IntegerType()), T.StructField("y", T.StringType())])
COLUMNS = (
    Shown("user", T.StringType(), True, ("k0",)),
    Shown("ts", T.TimestampType(), False, ("__time",)),
    Shown("place", PLACE, True, ("v0", "v1", "v2")),
)


def wire(groups: list[int]) -> pa.RecordBatch:
    """One row per number: its group, user u<group>, a second per row."""
    n = len(groups)
    return pa.RecordBatch.from_pydict(
        {
            "k0": [f"u{group}" for group in groups],
            "__window_start": pa.array([0] * n, UTC),
            "__window_end": pa.array([60_000_000] * n, UTC),
            "__group": pa.array(groups, pa.int64()),
            "__time": pa.array([row * 1_000_000 for row in range(n)], UTC),
            "v0": [row % 3 == 0 for row in range(n)],  # the struct is null
            "v1": pa.array([None if row % 3 == 0 else row for row in range(n)], pa.int32()),
            "v2": [None if row % 3 == 0 else "y" for row in range(n)],
        }
    )


def calls(func: Any, schema: str = "user string, n bigint", **changed: Any) -> GroupCalls:
    options = {"style": "arrow", "takes_key": False, **changed}
    kinds = {"string": T.StringType(), "bigint": T.LongType(), "timestamp": T.TimestampType()}
    named = [part.split() for part in schema.split(", ")]
    struct = T.StructType([T.StructField(name, kinds[kind]) for name, kind in named])
    return GroupCalls(
        "op", func, options["style"], options["takes_key"], COLUMNS[:1], COLUMNS, struct, ZONE
    )


def cut(groups: list[int], *sizes: int) -> Iterator[pa.RecordBatch]:
    whole, start = wire(groups), 0
    for size in (*sizes, len(groups)):
        yield whole.slice(start, size)
        start += size


def counted(table: pa.Table) -> pa.Table:
    return pa.table({"n": [table.num_rows], "user": table["user"].slice(0, 1)})


GROUPS = [0, 0, 0, 1, 2, 2, 2, 2, 3]


@pytest.mark.parametrize("sizes", [(), (1, 1, 1), (4,), (0, 5, 0), (2, 2, 2, 2)])
def test_one_call_per_group(sizes: tuple[int, ...]) -> None:
    assert [table.num_rows for table in groups_in(cut(GROUPS, *sizes))] == [3, 1, 4, 1]
    (batch,) = calls(counted)(cut(GROUPS, *sizes))
    assert batch.to_pydict() == {"user": ["u0", "u1", "u2", "u3"], "n": [3, 1, 4, 1]}
    assert list(calls(counted)(iter(()))) == []


def test_columns_and_keys_are_the_streams() -> None:
    seen: list[Any] = []

    def look(key: Any, table: pa.Table) -> pa.Table:
        seen.append((key, table))
        return counted(table)

    list(calls(look, takes_key=True)(cut([0, 0])))
    ((user, (start, end)), table) = seen[0]
    assert (user.as_py(), end.value - start.value) == ("u0", 60_000_000)
    assert table.schema.field("ts").type == pa.timestamp("us", tz=ZONE)
    assert table["place"].to_pylist() == [None, {"x": 1, "y": "y"}]


def test_pandas_sees_times_of_the_session_without_a_zone() -> None:
    seen: list[Any] = []

    def look(key: Any, frame: Any) -> Any:
        seen.append((key, frame))
        return frame[["user", "ts"]]

    made = calls(look, "user string, ts timestamp", style="pandas", takes_key=True)
    (batch,) = made(cut([0, 0]))
    ((user, (start, _)), frame) = seen[0]
    assert (user, start) == ("u0", datetime(1969, 12, 31, 19))
    assert frame.ts[1].to_pydatetime() == datetime(1969, 12, 31, 19, 0, 1)
    assert batch.column("ts").cast(pa.int64()).to_pylist() == [0, 1_000_000]


def test_pandas_columns_without_names_go_by_position() -> None:
    import pandas as pd

    made = calls(lambda frame: pd.DataFrame([["u", len(frame)]]), style="pandas")
    (batch,) = made(cut([0, 0, 1]))
    assert batch.to_pydict() == {"user": ["u", "u"], "n": [2, 1]}


@pytest.mark.parametrize(
    ("func", "style", "message"),
    [
        (lambda table: 1 / 0, "arrow", "ZeroDivisionError"),
        (lambda table: table, "arrow", "columns are user, ts, place"),
        (lambda table: 7, "arrow", "it is a int, not an Arrow table"),
        (lambda table: pa.table({"user": ["a"], "n": ["b"]}), "arrow", "b"),
        (lambda frame: frame, "pandas", "columns are user, ts, place"),
        (lambda frame: None, "pandas", "it is a NoneType, not a pandas DataFrame"),
    ],
)
def test_what_goes_wrong_is_placed(func: Any, style: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        list(calls(func, style=style)(cut([5])))
    assert message in str(error.value)
    assert "operator op, key (user='u5'), window 1970-01-01 00:00:00+00:00 to" in str(error.value)
