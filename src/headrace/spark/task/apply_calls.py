"""Calls a function of the user once per group, in Spark's Python worker.

The host sends the groups one after another and may cut a batch anywhere; the column GROUP separates them.
One group is in memory at a time. The function's result is checked against its declared schema. An error
names the operator, the key and the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from traceback import extract_tb, format_list
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from headrace.errors import QueryError
from headrace.plan.spec import GROUP, TIME, WINDOW_END, WINDOW_START

OUT_ROWS = 1 << 13  # results of small groups are sent together

_PARTITION_BITS = 40  # a partition has fewer groups than this many bits count

Style = Literal["arrow", "pandas"]


@dataclass(frozen=True)
class Shown:
    """A column of the function's input, and the wire's columns that it is made of."""

    name: str
    type: T.DataType
    nullable: bool
    leaves: tuple[str, ...]


@dataclass(frozen=True)
class GroupCalls:
    """How to call the function for each group; part of Spark's closure."""

    operator: str
    func: Callable[..., Any]
    style: Style
    takes_key: bool
    keys: tuple[Shown, ...]
    columns: tuple[Shown, ...]
    schema: T.StructType
    zone: str  # time zone of the Spark session, in which pandas shows times

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out: list[pa.Table] = []
        rows = 0
        for group in groups_in(batches):
            out.append(self._result(group))
            rows += out[-1].num_rows
            if rows >= OUT_ROWS:
                yield from pa.concat_tables(out).combine_chunks().to_batches()
                out, rows = [], 0
        if rows:
            yield from pa.concat_tables(out).combine_chunks().to_batches()

    def _result(self, group: pa.Table) -> pa.Table:
        try:
            returned = self.func(*self._arguments(group))
        except Exception as error:
            raise QueryError(
                f"{self._place(group)}: the function failed with {type(error).__name__}: {error}\n"
                f"{user_frames(error)}",
                hint="mend the function; nothing of this batch was kept, and a restart repeats it",
            ) from error
        try:
            return self._checked(returned)
        except (TypeError, ValueError, KeyError, pa.ArrowException) as error:
            raise QueryError(
                f"{self._place(group)}: the function's result is not {self.schema.simpleString()}: {error}",
                hint="return columns of the schema's names and types",
            ) from error

    def _place(self, group: pa.Table) -> str:
        key = [scalar.as_py() for scalar in self._key_scalars(group)]
        start, end = (group.column(name)[0].as_py() for name in (WINDOW_START, WINDOW_END))
        named = ", ".join(f"{shown.name}={value!r}" for shown, value in zip(self.keys, key, strict=True))
        return f"operator {self.operator}, key ({named}), window {start} to {end}"

    # ── what goes in ─────────────────────────────────────────────────────────────────────────

    def _arguments(self, group: pa.Table) -> list[Any]:
        table = pa.table(
            [self._column(shown, group) for shown in self.columns],
            names=[shown.name for shown in self.columns],
        )
        rows = table if self.style == "arrow" else self._frame(table)
        return [self._key(group), rows] if self.takes_key else [rows]

    def _key(self, group: pa.Table) -> tuple[Any, ...]:
        """The key's values, then the window's (start, end)."""
        zoned = pa.timestamp("us", tz=self.zone)
        bounds = tuple(group.column(name)[0].cast(zoned) for name in (WINDOW_START, WINDOW_END))
        key = self._key_scalars(group)
        if self.style == "arrow":
            return (*key, bounds)
        start, end = (bound.as_py().replace(tzinfo=None) for bound in bounds)
        return (*(value.as_py() for value in key), (start, end))

    def _key_scalars(self, group: pa.Table) -> list[pa.Scalar]:
        first = group.slice(0, 1)
        return [self._column(shown, first)[0] for shown in self.keys]

    def _column(self, shown: Shown, group: pa.Table) -> pa.Array:
        leaves = iter([group.column(name).combine_chunks() for name in shown.leaves])
        return rebuilt(shown.type, shown.nullable, leaves, self.zone)

    def _frame(self, table: pa.Table) -> Any:
        """The table as a frame of PySpark's kind: times without a zone, in the Spark session's zone."""
        frame = table.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True)
        for field in table.schema:
            if pa.types.is_timestamp(field.type) and field.type.tz is not None:
                frame[field.name] = frame[field.name].dt.tz_convert(self.zone).dt.tz_localize(None)
        return frame

    # ── what comes out ───────────────────────────────────────────────────────────────────────

    def _checked(self, returned: Any) -> pa.Table:
        names = self.schema.names
        if self.style == "pandas":
            returned = self._table(returned)
        elif isinstance(returned, pa.RecordBatch):
            returned = pa.Table.from_batches([returned])
        if not isinstance(returned, pa.Table):
            raise TypeError(f"it is a {type(returned).__name__}, not an Arrow table")
        if sorted(returned.column_names) != sorted(names):
            raise ValueError(f"its columns are {', '.join(returned.column_names) or 'none'}")
        return returned.select(names).cast(to_arrow_schema(self.schema, timezone="UTC"))

    def _table(self, frame: Any) -> pa.Table:
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"it is a {type(frame).__name__}, not a pandas DataFrame")
        # without names, by position, as in PySpark
        if not any(isinstance(label, str) for label in frame.columns):
            frame = frame.set_axis(self.schema.names[: len(frame.columns)], axis="columns")
        zoned = [field.name for field in self.schema if isinstance(field.dataType, T.TimestampType)]
        present = [name for name in zoned if name in frame.columns]
        frame = frame.assign(**{name: _instants(frame[name], self.zone) for name in present})
        declared = to_arrow_schema(self.schema, timezone="UTC")
        expected = pa.schema([declared.field(name) for name in frame.columns if name in declared.names])
        if len(expected) != len(frame.columns):
            raise ValueError(f"its columns are {', '.join(map(str, frame.columns))}")
        return pa.Table.from_pandas(frame, expected, preserve_index=False)


def user_frames(error: BaseException) -> str:
    """Where a function of the user failed: its own frames, without those that called it."""
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename != __file__]
    return "".join(format_list(frames)).rstrip()


def groups_in(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of each group, joined across batches."""
    parts: list[pa.RecordBatch] = []
    current: int | None = None
    for batch in batches:
        numbers = batch.column(GROUP).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(bounds):
            if end == start:
                continue
            if parts and numbers[start] != current:
                yield _by_time(parts)
                parts = []
            current = int(numbers[start])
            parts.append(batch.slice(start, end - start))
    if parts:
        yield _by_time(parts)


def numbered_apart(batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    """Results whose group numbers are not those of another partition."""
    for batch in batches:
        at = batch.schema.get_field_index(GROUP)
        numbers = pc.add(batch.column(at), pa.scalar(partition << _PARTITION_BITS, pa.int64()))
        yield batch.set_column(at, batch.schema.field(at), numbers)


def _by_time(parts: list[pa.RecordBatch]) -> pa.Table:
    """A group ordered by event time; the host sends a large group in several ordered parts."""
    group = pa.Table.from_batches(parts)
    if len(parts) == 1:
        return group
    times = group.column(TIME).cast(pa.int64()).to_numpy()
    return group if (times[1:] >= times[:-1]).all() else group.take(np.argsort(times, kind="stable"))


def rebuilt(kind: T.DataType, nullable: bool, leaves: Iterator[pa.Array], zone: str) -> pa.Array:
    """A column, rebuilt from the leaves that `spark.language.keys.flatten` made of it."""
    if not isinstance(kind, T.StructType):
        return next(leaves).cast(to_arrow_type(kind, timezone=zone))
    mask = next(leaves) if nullable else None
    fields = [rebuilt(field.dataType, nullable or field.nullable, leaves, zone) for field in kind.fields]
    return pa.StructArray.from_arrays(fields, kind.names, mask=mask)


def _instants(series: Any, zone: str) -> Any:
    """Adds the Spark session's zone to times without one."""
    import pandas as pd

    times = pd.to_datetime(series)
    return times.dt.tz_localize(zone, ambiguous=False) if times.dt.tz is None else times
