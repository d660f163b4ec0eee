"""Groups as PySpark's `applyInPandasWithState` shows them: frames, and keys as pandas has their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.sql import types as T

from headrace.spark.processors.blocks import Block, Stage
from headrace.spark.processors.frames import FrameStyle


class GroupFrames(FrameStyle):
    """Frames in and out of a function; whole numbers stay whole in groups without nulls."""

    def __init__(self, stage: Stage, output: T.StructType, zone: str) -> None:
        super().__init__(stage.names, output, zone)
        self._stage = stage
        self._apart: tuple[Block | None, bool] = (None, False)  # a block, and whether its groups widen

    def input(self, block: Block, start: int, end: int) -> Iterator[pd.DataFrame]:
        if block is not self._apart[0]:
            self._apart = block, _widens(block.batch.select(list(self._stage.columns)))
        if self._apart[1]:
            yield self._shown(block.table().slice(start, end - start))
        else:
            yield from super().input(block, start, end)

    def keys(self, block: Block) -> list[tuple[Any, ...]]:
        """The key of each group that begins in a block."""
        columns = block.batch.select(list(self._stage.keys))
        return self.shown_keys(pa.Table.from_batches([columns]).take(block.starts))

    def shown_keys(self, keys: pa.Table) -> list[tuple[Any, ...]]:
        """Rows of key columns as tuples of what pandas makes of them."""
        if not keys.num_columns:
            return [()] * keys.num_rows
        step = 1 if _widens(keys) else max(1, keys.num_rows)
        shown: list[tuple[Any, ...]] = []
        for start in range(0, keys.num_rows, step):
            frame = self._shown(keys.slice(start, step))
            shown += zip(*(_scalars(frame.iloc[:, at]) for at in range(frame.shape[1])), strict=True)
        return shown

    def empty(self) -> pd.DataFrame:
        """What a function gets for a group that has timed out."""
        return pd.DataFrame(columns=list(self._stage.names))

    def checked(self, results: Any) -> Iterator[pd.DataFrame]:
        """The function's results; raises what PySpark raises where they are no frames."""
        if isinstance(results, pd.DataFrame):
            raise _wrong_type("iterable of pandas.DataFrame", results)
        if not isinstance(results, Iterable):
            raise _wrong_type("iterable", results)
        for result in results:
            if not isinstance(result, pd.DataFrame):
                raise _wrong_type("iterator of pandas.DataFrame", result, "iterator of ")
            width, expected = len(result.columns), len(self._output.fields)
            if width != expected and not (width == 0 and result.empty):
                raise PySparkRuntimeError(
                    errorClass="RESULT_COLUMN_SCHEMA_MISMATCH",
                    messageParameters={"expected": str(expected), "actual": str(width)},
                )
            yield result


def _widens(columns: pa.RecordBatch | pa.Table) -> bool:
    """Whether pandas changes the type of whole numbers or flags, because there are nulls among them."""
    return any(
        column.null_count and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type))
        for column in columns.columns
    )


def _scalars(series: pd.Series) -> list[Any]:
    """The values of a series as indexing gives them."""
    if series.dtype.kind in "iufb":
        return list(series.to_numpy())
    return list(series)


def _wrong_type(expected: str, value: Any, prefix: str = "") -> PySparkTypeError:
    actual = f"{prefix}{type(value).__name__}"
    return PySparkTypeError(
        errorClass="UDF_RETURN_TYPE", messageParameters={"expected": expected, "actual": actual}
    )
