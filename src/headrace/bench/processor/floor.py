"""The floor of a processor: its own code over the same rows, with dicts for state, on one core."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headrace.spark.bridge.worker import seldom_collecting
from headrace.spark.processors.rows import row_maker

ROWS = 50_000


class _Key:
    """The current key."""

    key: Any = None


class _Dicts:
    """One state variable of every key; the methods of value, list and map state that the benchmark uses."""

    def __init__(self, current: _Key) -> None:
        self._current = current
        self._states: dict[Any, Any] = {}

    def exists(self) -> bool:
        return self._current.key in self._states

    def get(self) -> Any:
        return self._states[self._current.key]

    def update(self, value: Any) -> None:
        self._states[self._current.key] = value

    def appendValue(self, value: Any) -> None:
        self._states.setdefault(self._current.key, []).append(value)

    def getValue(self, key: Any) -> Any:
        return self._states.get(self._current.key, {}).get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self._states.setdefault(self._current.key, {})[key] = value


class _Handle:
    """Declares variables."""

    def __init__(self, current: _Key) -> None:
        self._current = current

    def getValueState(self, *_: Any) -> _Dicts:
        return _Dicts(self._current)

    def getListState(self, *_: Any) -> _Dicts:
        return _Dicts(self._current)

    def getMapState(self, *_: Any) -> _Dicts:
        return _Dicts(self._current)


def floor_rows_per_s(processor: Any, folder: Path) -> float:
    """Rows per second of CPU time; the second pass over the rows counts, so that every key has state.

    Garbage is collected as seldom as in a worker.
    """
    current = _Key()
    processor.init(_Handle(current))
    groups = list(_groups(folder))
    gc.collect()
    gc.freeze()
    spent_s = 0.0
    with seldom_collecting():
        for _ in range(2):
            begun = _cpu_s()
            results: list[Any] = []
            for key, rows in groups:
                current.key = key
                results += processor.handleInputRows(key, iter(rows), None)
            spent_s = _cpu_s() - begun
    gc.unfreeze()
    return sum(len(rows) for _, rows in groups) / spent_s


def _cpu_s() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def _groups(folder: Path) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
    """The rows of a batch by key, as a processor gets them."""
    table = pq.read_table(sorted(folder.glob("*.parquet"))[-1]).slice(0, ROWS)
    columns = table.select(["key", "amount"]).to_pydict()
    make = row_maker(("key", "amount"))
    groups: dict[Any, list[Any]] = {}
    for pair in zip(columns["key"], columns["amount"], strict=True):
        groups.setdefault(pair[0], []).append(make(pair))
    for key, rows in groups.items():
        yield (key,), rows
