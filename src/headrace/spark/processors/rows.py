"""Rows in and out of a processor: fast rows of PySpark's kind, and Arrow columns from the user's rows."""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import QueryError
from headrace.spark.processors.blocks import Block

OUT_ROWS = 1 << 13

_FIELDS = attrgetter("__fields__")


def row_maker(names: tuple[str, ...]) -> Callable[[tuple[Any, ...]], T.Row]:
    """Makes rows of these names, of a subclass of PySpark's `Row` with the attributes of a named tuple.

    A property with `itemgetter` would call `Row.__getitem__`, which takes ten times as long.
    """
    body: dict[str, Any] = {"__fields__": list(names)}
    for index, name in enumerate(names):
        if name.isidentifier() and not hasattr(T.Row, name):
            body[name] = _tuplegetter(index, None)
    kind = type("Row", (T.Row,), body)
    return partial(tuple.__new__, kind)


class RowStyle:
    """Calls a processor with rows (`transformWithState`)."""

    def __init__(self, names: tuple[str, ...], output: T.StructType) -> None:
        self._make = row_maker(names)
        self._schema = to_arrow_schema(output, timezone="UTC")
        self._nested = any(isinstance(f.dataType, T.StructType | T.ArrayType | T.MapType) for f in output)
        self._rows: list[T.Row] = []
        self._block: Block | None = None
        self._made: list[T.Row] = []  # all rows of the block

    def input(self, block: Block, start: int, end: int) -> Iterator[T.Row]:
        if block is not self._block:
            self._block, self._made = block, list(map(self._make, zip(*block.values, strict=True)))
        return iter(self._made[start:end])

    def add(self, rows: Iterable[T.Row]) -> None:
        self._rows += rows

    @property
    def pending(self) -> int:
        return len(self._rows)

    def take(self) -> Iterator[pa.RecordBatch]:
        """The results so far."""
        if self._rows:
            rows, self._rows = self._rows, []
            yield self._batch(rows)

    def _batch(self, rows: list[T.Row]) -> pa.RecordBatch:
        fields = getattr(rows[0], "__fields__", None)
        if self._nested or fields is None or not all(map(fields.__eq__, map(_FIELDS, rows))):
            return pa.RecordBatch.from_pylist([row.asDict(True) for row in rows], schema=self._schema)
        columns = dict(zip(fields, zip(*rows, strict=True), strict=True))
        arrays = [
            pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(len(rows), f.type)
            for f in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def punctual(
    operator: str, event_time: str | None, late_ms: int | None
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A check that results are after the watermark of late rows: operators above would drop them."""

    def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
        if event_time is None or late_ms is None or not batch.num_rows:
            return batch
        oldest_us = pc.min(batch.column(event_time).cast(pa.int64())).as_py()
        if oldest_us is not None and oldest_us <= late_ms * 1000:
            raise QueryError(
                "[EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED] Previous node emitted a row with "
                f"eventTime={oldest_us} which is older than current_watermark_value={late_ms * 1000}: "
                f"operator {operator}, column {event_time}",
                hint="return rows whose event time is after the watermark of their batch",
            )
        return batch

    return checked
