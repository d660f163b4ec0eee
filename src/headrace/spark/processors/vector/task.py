"""Vectorised processors: a function sees the rows and the state rows of many keys as two Arrow tables.

    func(rows, state) -> (new state, output)

`state` has the key columns and the state's columns. By default a key has one state row, and the new state
replaces that of every key in `rows`: a key without a row in it has no state any more. The rows that a
function marked `append` returns are added to those of their keys (`appended.py`).
Threads: one task's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import QueryError
from headrace.plan.work.cells import Cells
from headrace.spark.processors.blocks import Block, Feed, Stage
from headrace.spark.processors.keyed import Header
from headrace.spark.processors.requests import Requests, Talk
from headrace.spark.processors.vector.appended import AppendedRows

Update = Callable[[Any, Any], tuple[Any, Any]]
Key = tuple[Any, ...]
Pairs = Iterator[tuple[Any, ...]]
TIMELY = (T.DatetimeType, T.DecimalType, T.AnsiIntervalType, T.StructType)  # keys that `_plain` may change


@dataclass(frozen=True, eq=False)
class VectorPlan:
    """A vectorised function and how to call it; part of Spark's closure."""

    operator: str
    func: Update
    work: Cells
    stage: Stage
    keys: T.StructType
    state: T.StructType
    output: T.StructType
    pandas: bool
    zone: str
    appends: bool = False  # new state rows are added to those of their key

    def task(self, talk: Talk, times: Any) -> VectorTask:
        """The function over one partition of one batch."""
        return VectorTask(self, talk)


class VectorTask:
    """Runs a vectorised function over one partition of one batch."""

    def __init__(self, plan: VectorPlan, talk: Talk) -> None:
        self._plan, self._requests = plan, Requests(talk)
        self.late_rows = 0
        fields = [*plan.keys.fields, *plan.state.fields]
        self._state_schema = to_arrow_schema(T.StructType(fields), timezone="UTC")
        self._output_schema = to_arrow_schema(plan.output, timezone="UTC")
        self._appended = AppendedRows(self._requests, plan.state) if plan.appends else None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The output of the function; the state is written when the iterator is exhausted."""
        feed = Feed(self._plan.stage, batches, None)
        while (block := feed.advance()) is not None:
            if not len(block):
                continue
            rows = [block.table().slice(block.starts[0])]
            for later, head in feed.continued():  # a key is never cut in two
                rows.append(later.table().slice(0, head))
            yield from self._call(block, pa.concat_tables(rows))

    def _call(self, block: Block, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        headers = self._requests.headers(block.wire_keys)
        state = self._state(block, headers)
        returned = self._plan.func(*(self._shown(table) for table in (rows, state)))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise QueryError(
                f"operator {self._plan.operator}: the function returned {type(returned).__name__}",
                hint="return two tables: the new state and the output",
            )
        new_state, output = returned
        self._write(block, headers, self._checked(new_state, self._state_schema, "state"))
        yield from self._checked(output, self._output_schema, "output").combine_chunks().to_batches()

    def _state(self, block: Block, headers: list[Header | None]) -> pa.Table:
        """The state rows of the block's keys."""
        if self._appended is None:
            known = [at for at, header in enumerate(headers) if header is not None]
            stored = [header[1] for header in headers if header is not None]
        else:
            known, stored = self._appended.read(block.wire_keys, headers)
        width = len(self._plan.state.fields)
        values = [row + [None] * (width - len(row)) for row in stored]
        columns = [list(column) for column in zip(*(block.keys[at] for at in known), strict=True)]
        columns += [list(column) for column in zip(*values, strict=True)]
        if not known:
            return self._state_schema.empty_table()
        arrays = [_array(column, f.type) for column, f in zip(columns, self._state_schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._state_schema)

    def _write(self, block: Block, headers: list[Header | None], state: pa.Table) -> None:
        width = len(self._plan.keys.fields)
        columns = [_plain(column) for column in state.columns]
        keys = zip(*columns[:width], strict=True) if width else iter([()] * state.num_rows)
        values = zip(*columns[width:], strict=True)
        self._requests.begin_block(block.wire_keys)
        if self._appended is None:
            left = self._replace(block, keys, values, state.num_rows)
        else:
            left = self._add(self._appended, block, headers, keys, values)
        if left:
            raise QueryError(
                f"operator {self._plan.operator}: the new state has the key {next(iter(left))!r}, "
                "which has no rows in this call",
                hint="return state rows of the keys in `rows` only",
            )
        self._requests.end_block()

    def _replace(self, block: Block, keys: Pairs, values: Pairs, many: int) -> dict[Key, Any]:
        """Replaces the state row of every key; returns rows of other keys."""
        rows = dict(zip(keys, values, strict=True))
        if len(rows) < many:
            raise QueryError(
                f"operator {self._plan.operator}: the new state has {many} rows of {len(rows)} keys",
                hint="return one state row per key, or mark the function with @hr.append",
            )
        replaced = map(rows.pop, self._plain_keys(block), repeat(None))
        self._requests.put_headers([None if row is None else [None, list(row)] for row in replaced])
        return rows

    def _add(
        self, appended: AppendedRows, block: Block, headers: list[Header | None], keys: Pairs, values: Pairs
    ) -> dict[Key, Any]:
        """Adds state rows to those of their keys; returns rows of other keys."""
        rows: dict[Key, list[list[Any]]] = {}
        for key, row in zip(keys, values, strict=True):
            rows.setdefault(key, []).append(list(row))
        for number, key in enumerate(self._plain_keys(block)):
            added = rows.pop(key, None)
            if added:
                appended.add(number, headers[number], added)
        return dict(rows)

    def _plain_keys(self, block: Block) -> list[Key]:
        """The keys of a block as `_plain` writes them."""
        if not any(isinstance(field.dataType, TIMELY) for field in self._plan.keys.fields):
            return block.keys
        return [tuple(map(_comparable, key)) for key in block.keys]

    def _shown(self, table: pa.Table) -> Any:
        return table.to_pandas(date_as_object=True) if self._plan.pandas else table

    def _checked(self, returned: Any, schema: pa.Schema, what: str) -> pa.Table:
        try:
            if self._plan.pandas:
                return pa.Table.from_pandas(returned, schema, preserve_index=False)
            return returned.select(schema.names).cast(schema)
        except (AttributeError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise QueryError(
                f"operator {self._plan.operator}: the function's {what} does not fit: {error}",
                hint=f"return a table with the columns {', '.join(schema.names)}",
            ) from error


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """A column as values that MessagePack has: times and dates as integers, decimals as text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The inverse of `_plain`; key values may be Python's own dates and times."""
    if pa.types.is_decimal(kind) and any(isinstance(value, str) for value in values):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_timestamp(kind) and any(isinstance(value, int) for value in values):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date(kind) and any(isinstance(value, int) for value in values):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, kind)


def _comparable(value: Any) -> Any:
    """A key value as `_plain` writes it."""
    return _plain(pa.chunked_array([pa.array([value])]))[0] if _is_timely(value) else value


def _is_timely(value: Any) -> bool:
    return hasattr(value, "isoformat") or type(value).__name__ == "Decimal"
