"""Reads state in Spark's executors: one task per partition of the operator, straight from storage.

The version is chosen once, when the read is planned, and every task reads that one. Filters on key columns
become lookups; filters on the start of a window leave out what lies outside.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headrace.blob.locations import Locations
from headrace.inspect.changes import Changes
from headrace.inspect.describe import OPERATORS_SCHEMA, operator_rows
from headrace.inspect.state import State
from headrace.inspect.table import StateTable
from headrace.spark.tables.filters import pushed
from headrace.spark.tables.options import TableOptions


def operators_schema() -> pa.Schema:
    return OPERATORS_SCHEMA


def open_table(options: TableOptions, state: State | None = None) -> StateTable | Changes:
    """The table, or the changes, that the options name."""
    assert options.operator is not None
    state = state or State(options.checkpoint)
    if options.changes_from is not None:
        return state.changes(
            options.operator, options.changes_from, options.changes_to, accumulators=options.accumulators
        )
    return state.table(
        options.operator,
        version=options.version,
        as_of_batch=options.as_of_batch,
        accumulators=options.accumulators,
    )


@dataclass(frozen=True)
class PartitionToRead(InputPartition):  # type: ignore[misc]
    """One partition of a version, or of two; it has all that a task needs to read it."""

    location: str
    number: int
    tables: tuple[StateTable, ...]  # without their storage, which every task opens itself

    def read(self) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="headrace-read-") as local:
            blobs = Locations(Path(local)).open(self.location, create=False)
            tables = [replace(table, blobs=blobs) for table in self.tables]
            source = tables[0] if len(tables) == 1 else Changes(tables[0], tables[1])
            yield from source.partition_batches(self.number)


class _Pushes:
    """`pushFilters` of a reader that also works where Spark does not push filters.

    Spark refuses a reader that overrides the method while `spark.sql.python.filterPushdown.enabled` is off.
    It looks at `__func__` to see whether it is overridden.
    """

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        vars(self)["__func__"] = DataSourceReader.pushFilters

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


class StateReader(DataSourceReader):  # type: ignore[misc]
    """Reads one operator's table."""

    def __init__(self, options: TableOptions) -> None:
        with State(options.checkpoint) as state:
            opened = open_table(options, state)
            self._location = state.record(opened_spec(opened)).location
        tables = (opened.before, opened.after) if isinstance(opened, Changes) else (opened,)
        self._tables: tuple[StateTable, ...] = tuple(replace(table, blobs=None) for table in tables)  # type: ignore[arg-type]
        self.pushFilters = _Pushes(self)

    def push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Take the filters that state can be read by; Spark evaluates all of them again."""
        selection = pushed(self._tables[-1], filters)
        self._tables = tuple(replace(table, selection=selection) for table in self._tables)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [PartitionToRead(self._location, at, self._tables) for at in self._tables[-1].partitions]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield from partition.read()


def opened_spec(opened: StateTable | Changes) -> str:
    return (opened.after if isinstance(opened, Changes) else opened).spec.name


class OperatorsReader(DataSourceReader):  # type: ignore[misc]
    """Lists the operators of a checkpoint."""

    def __init__(self, options: TableOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with State(self._options.checkpoint) as state:
            yield from pa.Table.from_pylist(operator_rows(state), OPERATORS_SCHEMA).to_batches()
