"""The expected results of a store in plain Python: every row is kept, every result is computed from rows.

One string key, one nullable integer `v0`. Fixed windows, sessions and none; folding and holistic operators.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.plan.spec import (
    TIME,
    Accumulator,
    Holistic,
    HolisticResult,
    OperatorSpec,
    Window,
    input_schema,
)
from headrace.store.rows.slices import is_closed, windows_over

Bounds = tuple[int, int]  # start and end of a window


@dataclass(frozen=True)
class Row:
    """One row of input."""

    key: int
    time_us: int
    value: int | None


def name_of(key: int) -> str:
    return f"key-{key}" * 3


def batch_of(spec: OperatorSpec, rows: Iterable[Row]) -> pa.RecordBatch:
    """The rows as the host receives them. Hashes are few, so that different keys share them."""
    listed = list(rows)
    hashes = (np.array([row.key for row in listed], np.int64) % 61) << 40
    columns = [pa.array(hashes, pa.int64())]
    if spec.timed:
        times = pa.array([row.time_us for row in listed], pa.int64())
        columns.append(times.cast(input_schema(spec).field(TIME).type))
    columns.append(pa.array([name_of(row.key) for row in listed], pa.string()))
    columns.append(pa.array([row.value for row in listed], pa.int64()))
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(spec))


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Results in a canonical order, with times as integers."""
    plain: list[tuple[Any, ...]] = []
    for batch in batches:
        columns = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in batch.columns
        ]
        plain += zip(*(column.to_pylist() for column in columns), strict=True)
    return sorted(plain, key=repr)


@dataclass
class Group:
    """The rows of one key in one open window."""

    key: int
    bounds: Bounds | None
    rows: list[Row] = field(default_factory=list)
    touched: bool = False


@dataclass
class StoreModel:
    """State and results of one partition."""

    spec: OperatorSpec
    watermark_us: int | None = None
    late_rows: int = 0
    groups: dict[tuple[int, Bounds | None], Group] = field(default_factory=dict)

    def copy(self) -> StoreModel:
        return copy.deepcopy(self)

    def epoch(self, rows: Iterable[Row], watermark_us: int | None) -> list[tuple[Any, ...]]:
        """Applies rows and moves the watermark; returns the epoch's results."""
        for group in self.groups.values():
            group.touched = False
        for row in rows:
            self._take(row)
        groups = self.groups.values()
        emitted = [self.answer(group) for group in groups if self._emits(group, watermark_us)]
        self.watermark_us = watermark_us
        self.groups = {at: group for at, group in self.groups.items() if not self._over(group.bounds)}
        return sorted(emitted, key=repr)

    def _take(self, row: Row) -> None:
        window = self.spec.window
        if window is not None and window.session:
            self._take_session(row, window)
            return
        if window is None:
            self._add(row, None)
            return
        slice_us = row.time_us - (row.time_us - window.offset_us) % window.slice_us
        if is_closed(slice_us, window, self.watermark_us):
            self.late_rows += 1
            return
        for start in windows_over(slice_us, window):
            bounds = (start, start + window.width_us)
            if not self._over(bounds):
                self._add(row, bounds)

    def _add(self, row: Row, bounds: Bounds | None) -> None:
        group = self.groups.setdefault((row.key, bounds), Group(row.key, bounds))
        group.rows.append(row)
        group.touched = True

    def _take_session(self, row: Row, window: Window) -> None:
        """Merges the row's own session with every session of the key that it touches."""
        if self._over((row.time_us, row.time_us + window.width_us)):
            self.late_rows += 1
            return
        start, end, rows = row.time_us, row.time_us + window.width_us, [row]
        for other in self._sessions(row.key):
            other_start, other_end = other.bounds or (0, 0)
            if other_start <= end and start <= other_end:
                start, end = min(start, other_start), max(end, other_end)
                rows = [*other.rows, *rows]
                del self.groups[row.key, other.bounds]
        self.groups[row.key, (start, end)] = Group(row.key, (start, end), rows, touched=True)

    def _sessions(self, key: int) -> Iterator[Group]:
        of_key = [group for group in self.groups.values() if group.key == key]
        return iter(sorted(of_key, key=lambda group: group.bounds or (0, 0)))

    def _over(self, bounds: Bounds | None) -> bool:
        """Whether the window accepts no more rows."""
        if bounds is None or self.watermark_us is None or self.spec.window is None:
            return False
        return bounds[1] + self.spec.window.lateness_us <= self.watermark_us

    def _emits(self, group: Group, watermark_us: int | None) -> bool:
        if self.spec.emit == "changes":
            return group.touched
        if group.bounds is None or watermark_us is None or group.bounds[1] > watermark_us:
            return False
        fired = self.watermark_us is not None and group.bounds[1] <= self.watermark_us
        return group.touched if fired else True

    def answer(self, group: Group) -> tuple[Any, ...]:
        folded = [accumulated(accumulator, group.rows) for accumulator in self.spec.work.accumulators]
        work = self.spec.work
        results = work.results if isinstance(work, Holistic) else ()
        whole = [holistic(one, group.rows) for one in results]
        return (name_of(group.key), *(group.bounds or ()), *folded, *whole)


def accumulated(accumulator: Accumulator, rows: list[Row]) -> int | None:
    """The accumulator over these rows."""
    values = [row.value for row in rows if row.value is not None]
    if accumulator.kind == "count":
        return len(rows) if accumulator.input is None else len(values)
    if not values:
        return None
    if accumulator.kind == "sum":
        return sum(values)
    return min(values) if accumulator.kind == "min" else max(values)


def holistic(function: HolisticResult, rows: list[Row]) -> list[int]:
    """Only `list` (in the order of time, then value) and `set` (in the order of values)."""
    timed = sorted((row.time_us, row.value) for row in rows if row.value is not None)
    values = [value for _, value in timed]
    return values if function.kind == "list" else sorted(set(values))
