"""Timers and expired values of one task: both are reminders of keys.

Timers fire in the order of their times; which of them fire is decided before the first one does. A reminder
is a hint: the state of its key decides.
Threads: one task's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import types as T

from headrace.plan.columns import HASH
from headrace.plan.work.cells import CELL
from headrace.spark.processors.blocks import Stage
from headrace.spark.processors.keyed import KeyedState
from headrace.spark.processors.requests import Keys, Requests
from headrace.spark.processors.rows import OUT_ROWS

DUE_KEYS = 1 << 12  # keys whose timers are looked at together

Expired = Callable[[Any, int], None]  # user code at a timer of a key; it deletes the timer


class Expiring(Protocol):
    """A state variable with a time to live."""

    def prune(self) -> None: ...


class Results(Protocol):
    """Results that user code has returned by now."""

    @property
    def pending(self) -> int: ...

    def take(self) -> Iterator[pa.RecordBatch]: ...


class Timers:
    """The reminders of a partition up to a time; None is before any."""

    def __init__(
        self,
        stage: Stage,
        requests: Requests,
        keyed: KeyedState,
        until_ms: int | None,
        shown: Callable[[pa.Table], list[Any]] | None = None,
    ) -> None:
        self._stage, self._requests, self._keyed = stage, requests, keyed
        self._until_ms, self.shown = until_ms, shown or self._rows

    @cached_property
    def _due(self) -> pa.Table | None:
        """Keys that have a reminder up to now, in the order of time; a reminder may be stored twice."""
        if self._until_ms is None:
            return None
        batches = list(self._requests.due(self._until_ms))
        if not batches:
            return None
        names = [CELL, HASH, *self._stage.wire_keys]
        once = pa.Table.from_batches(batches).group_by(names).aggregate([])
        return once.sort_by([(CELL, "ascending")])

    def fire(self, expired: Expired, results: Results) -> Iterator[pa.RecordBatch]:
        """Fires the timers among the reminders."""
        for part in self.firing():
            yield from self._fire(part, expired, results)

    def firing(self) -> list[pa.Table]:
        """The timers that fire in this batch, in parts, in the order of their times."""
        parts = [self._verified(part) for part in self._parts()]
        return [part for part in parts if part is not None]

    def expire(self, states: Sequence[Expiring]) -> None:
        """Drops the values of reminded keys whose time to live is over."""
        if not states:
            return
        for part in self._parts():
            keys, _ = self.distinct(part)
            self._requests.begin_block(keys)
            for number, header in enumerate(self._requests.headers(keys)):
                self._requests.load_key(self._keyed, number, header)
                for state in states:
                    state.prune()
                self._requests.store_key(self._keyed)
            self._requests.end_block()

    def _parts(self) -> Iterator[pa.Table]:
        due = self._due
        if due is None:
            return
        for start in range(0, due.num_rows, DUE_KEYS):
            yield due.slice(start, DUE_KEYS)

    def _verified(self, part: pa.Table) -> pa.Table | None:
        """The reminders that are timers of their keys."""
        keys, at = self.distinct(part)
        headers = self._requests.headers(keys)
        times = part.column(CELL).to_pylist()
        valid = []
        for number, time in zip(at, times, strict=True):
            self._keyed.load(headers[number])
            valid.append(time in self._keyed.timers)
        return part.filter(pa.array(valid)) if any(valid) else None

    def _fire(self, part: pa.Table, expired: Expired, results: Results) -> Iterator[pa.RecordBatch]:
        keys, at = self.distinct(part)
        headers, shown = self._requests.headers(keys), self.shown(part)
        self._requests.begin_block(keys)
        for number, key, time in zip(at, shown, part.column(CELL).to_pylist(), strict=True):
            self._requests.load_key(self._keyed, number, headers[number])
            expired(key, time)
            self._requests.store_key(self._keyed)
            headers[number] = self._keyed.entries
            if results.pending >= OUT_ROWS:
                yield from results.take()
        self._requests.end_block()

    def _rows(self, part: pa.Table) -> list[T.Row]:
        """The user's keys; they are rebuilt from the columns of the wire."""
        columns = [part.column(name).to_pylist() for name in self._stage.wire_keys]
        row = T.Row(*self._stage.key_names)
        return [row(*values) for values in zip(*columns, strict=True)]

    def distinct(self, part: pa.Table) -> tuple[Keys, list[int]]:
        """The keys of reminders, each once, and the key of each reminder."""
        names = [HASH, *self._stage.wire_keys]
        rows = part.select(names)
        numbers: dict[tuple[Any, ...], int] = {}
        at, firsts = [], []
        for index, key in enumerate(zip(*(rows.column(n).to_pylist() for n in names), strict=True)):
            if key not in numbers:
                numbers[key] = len(numbers)
                firsts.append(index)
            at.append(numbers[key])
        return Keys(rows.take(firsts).combine_chunks().to_batches()[0]), at
