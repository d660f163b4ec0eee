"""A test harness for processors that needs no Spark: feed rows and time, inspect state and timers.

The harness runs the code that tasks run, over state in memory. Unlike PySpark's `TwsTester` it has batches,
in which timers fire and values expire, and time to live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from headrace.errors import QueryError
from headrace.plan.columns import HASH, TIME
from headrace.plan.work.cells import CELL, VALUE, Cells
from headrace.spark.processors.blocks import Stage
from headrace.spark.processors.cells import HEADER
from headrace.spark.processors.convert import unpack
from headrace.spark.processors.ddl import struct_of
from headrace.spark.processors.handle import TIME_MODES, Declaring, TaskHandle
from headrace.spark.processors.keyed import Header, KeyedState
from headrace.spark.processors.run import BatchTimes, ProcessorPlan
from headrace.spark.processors.states import ListVariable, MapVariable, ValueVariable

Key = tuple[Any, ...]


class ProcessorTester:
    """Runs batches of rows through a processor.

    Parameters
    ----------
    processor : pyspark.sql.streaming.StatefulProcessor
        A processor that takes and returns rows.
    rows : StructType or str
        The schema of the input.
    key : str or list of str
        The grouping columns.
    output : StructType or str
        The schema of the rows that the processor returns.
    timeMode : {"None", "ProcessingTime", "EventTime"}
        The clock of timers and of time to live.
    eventTime : str, optional
        The event time column; rows at or before the watermark are late in ``EventTime`` mode.

    Examples
    --------
    >>> import headrace as hr
    >>> from pyspark.sql import Row
    >>> from pyspark.sql.streaming import StatefulProcessor
    >>> class Totals(StatefulProcessor):
    ...     def init(self, handle):
    ...         self.total = handle.getValueState("total", "total long")
    ...     def handleInputRows(self, key, rows, timerValues):
    ...         total = (self.total.get() or (0,))[0] + sum(row.amount for row in rows)
    ...         self.total.update((total,))
    ...         yield Row(user=key[0], total=total)
    ...     def close(self):
    ...         pass
    >>> tester = hr.ProcessorTester(Totals(), "user long, amount long", "user", "user long, total long")
    >>> tester.batch([{"user": 1, "amount": 5}])
    [Row(user=1, total=5)]
    >>> tester.value("total", 1)
    (5,)
    """

    def __init__(
        self,
        processor: Any,
        rows: T.StructType | str,
        key: str | Sequence[str],
        output: T.StructType | str,
        timeMode: str = "None",
        eventTime: str | None = None,
    ) -> None:
        self._schema, self._output = _parsed(rows), _parsed(output)
        self._keys = (key,) if isinstance(key, str) else tuple(key)
        self._mode = timeMode.lower()
        if self._mode not in TIME_MODES:
            raise QueryError(f"timeMode={timeMode!r}", hint="write None, ProcessingTime or EventTime")
        declaring = Declaring(_parsed, self._mode)
        processor.init(declaring)
        self._work = Cells(tuple(declaring.variables.values()), self._mode)
        self._processor, self._event_time = processor, eventTime
        self._memory = MemoryTalk(self._wire_schema())
        self._late_ms: int | None = None

    def batch(
        self,
        rows: Sequence[Mapping[str, Any]],
        processing_time_ms: int = 0,
        watermark_ms: int | None = None,
    ) -> list[T.Row]:
        """Runs one batch: rows, then timers that are due, then values whose time to live is over."""
        names = [field.name for field in self._schema]
        stage = Stage(
            wire_keys=tuple(f"k{at}" for at in range(len(self._keys))),
            keys=tuple(f"c{names.index(key)}" for key in self._keys),
            columns=tuple(f"c{at}" for at in range(len(names))),
            names=tuple(names),
            key_names=self._keys,
        )
        plan = ProcessorPlan("tester", self._processor, self._work, "row", stage, self._output, "UTC")
        times = BatchTimes(processing_time_ms, self._late_ms, watermark_ms)
        task = plan.task(self._memory, times)
        results = list(task.run(iter([self._batch(rows)] if rows else [])))
        self._late_ms = watermark_ms
        make = T.Row(*self._output.names)
        return [make(*row.values()) for batch in results for row in batch.to_pylist()]

    def value(self, name: str, *key: Any, at_ms: int = 0) -> tuple[Any, ...] | None:
        """The value of a value state."""
        state: ValueVariable = self._state(name, key, at_ms)
        return state.get()

    def items(self, name: str, *key: Any, at_ms: int = 0) -> list[tuple[Any, ...]]:
        """The items of a list state."""
        state: ListVariable = self._state(name, key, at_ms)
        return list(state.get())

    def entries(self, name: str, *key: Any, at_ms: int = 0) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The entries of a map state."""
        state: MapVariable = self._state(name, key, at_ms)
        return dict(state.iterator())

    def timers(self, *key: Any) -> list[int]:
        """The timers of a key, in the order of time."""
        keyed = KeyedState(len(self._work.variables), 0)
        keyed.load(self._memory.header(key))
        return list(keyed.timers)

    def _state(self, name: str, key: Key, at_ms: int) -> Any:
        keyed = KeyedState(len(self._work.variables), at_ms)
        keyed.load(self._memory.header(key))
        handle = TaskHandle(self._work.variables, keyed, _CellsOf(self._memory, key), self._mode)
        kinds = {one.name: one.kind for one in self._work.variables}
        if name not in kinds:
            raise QueryError(f"no state {name!r}", hint=f"declared are {', '.join(kinds) or 'none'}")
        if kinds[name] == "map":
            return handle.getMapState(name, None, None)
        return (
            handle.getListState(name, None) if kinds[name] == "list" else handle.getValueState(name, None)
        )

    def _wire_schema(self) -> pa.Schema:
        keys = [
            pa.field(f"k{at}", to_arrow_type(self._schema[key].dataType, timezone="UTC"))
            for at, key in enumerate(self._keys)
        ]
        cell, value = pa.field(CELL, pa.int64()), pa.field(VALUE, pa.binary())
        return pa.schema([pa.field(HASH, pa.int64()), *keys, cell, value])

    def _batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        for at, field in enumerate(self._schema):
            values = [row.get(field.name) for row in rows]
            columns[f"c{at}"] = pa.array(values, to_arrow_type(field.dataType, timezone="UTC"))
        names = [field.name for field in self._schema]
        for at, key in enumerate(self._keys):
            columns[f"k{at}"] = columns[f"c{names.index(key)}"]
        keys = zip(*(columns[f"k{at}"].to_pylist() for at in range(len(self._keys))), strict=True)
        columns[HASH] = pa.array([hash(key) for key in keys], pa.int64())
        if self._event_time is not None:
            columns[TIME] = columns[f"c{names.index(self._event_time)}"]
        return pa.RecordBatch.from_pydict(columns)


class MemoryTalk:
    """The state of a partition in memory; a `Talk`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.cells: dict[tuple[Key, int], bytes] = {}
        self._reminders: dict[tuple[int, int, Key], None] = {}  # by time, hash and key
        self._answers: list[pa.Array] = []

    def header(self, key: Key) -> Header | None:
        """The state of a key."""
        stored = self.cells.get((key, HEADER))
        return None if stored is None else list(unpack(stored))

    def ask(self, rows: pa.RecordBatch) -> None:
        self._answers.append(pa.array([self.cells.get(cell) for cell in self._cells(rows)], pa.binary()))

    def read(self) -> pa.Array:
        return self._answers.pop(0)

    def write(self, rows: pa.RecordBatch) -> None:
        for cell, value in zip(self._cells(rows), rows.column(VALUE).to_pylist(), strict=True):
            if value is None:
                self.cells.pop(cell, None)
            else:
                self.cells[cell] = value

    def remind(self, rows: pa.RecordBatch) -> None:
        hashes = rows.column(HASH).to_pylist()
        for (key, time), hashed in zip(self._cells(rows), hashes, strict=True):
            self._reminders[time, hashed, key] = None

    def due(self, until_ms: int) -> Iterator[pa.RecordBatch]:
        due = sorted((one for one in self._reminders if one[0] <= until_ms), key=lambda one: one[:2])
        for one in due:
            del self._reminders[one]
        if due:
            names = [name for name in self.schema.names if name not in (HASH, CELL, VALUE)]
            columns = dict(zip(names, zip(*(key for _, _, key in due), strict=True), strict=True))
            arrays = {name: pa.array(columns[name], self.schema.field(name).type) for name in names}
            arrays[HASH] = pa.array([hashed for _, hashed, _ in due], pa.int64())
            arrays[CELL] = pa.array([time for time, _, _ in due], pa.int64())
            yield pa.RecordBatch.from_pydict(arrays)

    def _cells(self, rows: pa.RecordBatch) -> list[tuple[Key, int]]:
        names = [name for name in self.schema.names if name not in (HASH, CELL, VALUE)]
        keys = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
        return list(zip(keys, rows.column(CELL).to_pylist(), strict=True))


class _CellsOf:
    """Cells of one key in memory; a `KeyCells`."""

    def __init__(self, memory: MemoryTalk, key: Key) -> None:
        self._memory, self._key = memory, key

    def read(self, numbers: list[int]) -> list[bytes | None]:
        return [self._memory.cells.get((self._key, number)) for number in numbers]

    def write(self, number: int, value: bytes | None) -> None:
        raise TypeError("the harness shows state; only the processor changes it")


def _parsed(schema: T.StructType | str) -> T.StructType:
    return struct_of(schema) if isinstance(schema, str) else schema
