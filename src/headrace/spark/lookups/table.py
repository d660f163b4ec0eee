"""The static table of a look-up: a batch DataFrame, or a function that returns one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from pyspark.sql import DataFrame

from headrace.errors import QueryError
from headrace.spark.lookups.generations import GENERATION, MARKER

Read: TypeAlias = Callable[[], DataFrame]
Table: TypeAlias = DataFrame | Read


def reader_of(table: Any) -> Read:
    """A function that reads the table as it is now; raises for what is no table."""

    def read() -> DataFrame:
        rows = table if isinstance(table, DataFrame) else table()
        _check(rows)
        rows._jdf.queryExecution().analyzed().refresh()  # lists its files again
        return rows

    if not isinstance(table, DataFrame) and not callable(table):
        _check(table)
    return read


def _check(table: Any) -> None:
    if not isinstance(table, DataFrame) or table.isStreaming:
        raise QueryError(
            "lookup takes a batch DataFrame, or a function that returns one",
            hint="read the table with spark.read; two streams are joined by join(…)",
        )
    reserved = [name for name in table.columns if name in (GENERATION, MARKER)]
    if reserved:
        raise QueryError(f"column {reserved[0]} of the table is reserved", hint="rename it")
    if not table.columns:
        raise QueryError("the table has no columns", hint="select the key and the values")
