"""Frames in and out of a processor (`transformWithStateInPandas`)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import QueryError
from headrace.spark.processors.blocks import Block
from headrace.spark.processors.cutting import part_of, stacked


class FrameStyle:
    """Calls a processor with a frame per key and block."""

    def __init__(self, names: tuple[str, ...], output: T.StructType, zone: str) -> None:
        self._output, self._zone = output, zone
        self._schema = to_arrow_schema(output, timezone="UTC")
        self._frames: list[pd.DataFrame] = []
        self._rows = 0
        self._block: Block | None = None
        self._frame = pd.DataFrame()

    def input(self, block: Block, start: int, end: int) -> Iterator[pd.DataFrame]:
        if block is not self._block:
            self._block, self._frame = block, self._shown(block.table())
        yield part_of(self._frame, start, end)

    def _shown(self, table: pa.Table) -> pd.DataFrame:
        """The table as a frame of PySpark's kind: times without a zone, in the Spark session's zone."""
        frame = table.to_pandas(date_as_object=True, coerce_temporal_nanoseconds=True)
        for field in table.schema:
            if pa.types.is_timestamp(field.type) and field.type.tz is not None:
                frame[field.name] = frame[field.name].dt.tz_convert(self._zone).dt.tz_localize(None)
        return frame

    def add(self, frames: Iterable[pd.DataFrame]) -> None:
        for frame in frames:
            if not isinstance(frame, pd.DataFrame):
                raise QueryError(
                    f"the processor returned a {type(frame).__name__}, not a pandas DataFrame",
                    hint="yield frames from handleInputRows and handleExpiredTimer",
                )
            if len(frame):
                self._frames.append(frame)
                self._rows += len(frame)

    @property
    def pending(self) -> int:
        return self._rows

    def take(self) -> Iterator[pa.RecordBatch]:
        """The results so far."""
        if self._rows:
            frames, self._frames, self._rows = self._frames, [], 0
            yield self._batch(frames)

    def _batch(self, frames: list[pd.DataFrame]) -> pa.RecordBatch:
        joined = _joined(frames)
        arrays = [self._array(frames, joined, field, at) for at, field in enumerate(self._schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(
        self, frames: list[pd.DataFrame], joined: pd.DataFrame | None, field: pa.Field, at: int
    ) -> pa.Array:
        if joined is not None:
            column = _column(joined, field.name, at)
            if _is_exact(column, field.type):
                return self._converted(column, field.type)
        columns = [_column(frame, field.name, at) for frame in frames]
        return pa.concat_arrays([self._converted(column, field.type) for column in columns])

    def _converted(self, column: pd.Series, kind: pa.DataType) -> pa.Array:
        if _is_zoned(kind) and column.dtype.kind == "M" and column.dt.tz is None:
            column = column.dt.tz_localize(self._zone, ambiguous=False)
        return pa.Array.from_pandas(column, type=kind)


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame | None:
    """Frames of the same columns as one: a series per column of every small frame would take longer."""
    labels = frames[0].columns.tolist()
    if any(frame.columns.tolist() != labels for frame in frames):
        return None
    rows = stacked(frames)
    if rows is not None:
        return rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # frames of nothing but nulls; see `_is_exact`
        return pd.concat(frames, ignore_index=True)


def _is_exact(column: pd.Series, kind: pa.DataType) -> bool:
    """Whether joining kept the values: pandas rounds whole numbers if another frame has a float or null."""
    if _is_zoned(kind):
        return bool(column.dtype.kind == "M")
    return bool(column.dtype.kind != "f" or pa.types.is_floating(kind))


def _is_zoned(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _column(frame: pd.DataFrame, name: str, at: int) -> Any:
    """A column by name; by position in a frame without text labels, as in PySpark."""
    if name in frame.columns:
        return frame[name]
    if any(isinstance(label, str) for label in frame.columns):
        raise QueryError(
            f"the processor returned columns {', '.join(map(str, frame.columns))}, and {name} is missing",
            hint="return a column for every field of outputStructType",
        )
    return frame.iloc[:, at]
