"""State variables and timers as an asynchronous processor sees them: the synchronous ones, awaited.

A call runs on the state of the current key, which is in memory. If it needs a chunk of a long list or a
bucket of a large map, it waits until that is in memory, and runs again.
Threads: one task's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.sql.streaming.stateful_processor import TimerValues

from headrace.plan.work.cells import Variable
from headrace.spark.asynchronous.context import CURRENT, CellsMissing
from headrace.spark.processors.cells import KeyCells
from headrace.spark.processors.handle import TaskHandle
from headrace.spark.processors.keyed import KeyedState
from headrace.spark.processors.states import ListVariable, MapVariable, Slot, ValueVariable

Result = TypeVar("Result")
Fields = tuple[Any, ...]

_current = CURRENT.get


class AsyncValueState:
    """A single value per key; its calls never wait."""

    __slots__ = ("_get", "_inner", "_slot", "_update")

    def __init__(self, inner: ValueVariable, slot: Slot) -> None:
        self._inner, self._slot = inner, slot
        self._get, self._update = inner.get, inner.update

    async def exists(self) -> bool:
        """Whether the key has a value."""
        self._slot.keyed = CURRENT.get()
        return self._inner.exists()

    async def get(self) -> Fields | None:
        """The value as a tuple; None if there is none."""
        self._slot.keyed = _current()
        return self._get()

    async def update(self, newValue: Fields) -> None:
        """Replaces the value."""
        self._slot.keyed = _current()
        self._update(newValue)

    async def clear(self) -> None:
        """Removes the value."""
        self._slot.keyed = CURRENT.get()
        self._inner.clear()


class AsyncListState:
    """A list per key."""

    def __init__(self, inner: ListVariable, slot: Slot) -> None:
        self._inner, self._slot = inner, slot

    async def exists(self) -> bool:
        """Whether the list has items."""
        return await _run(self._slot, self._inner.exists)

    async def get(self) -> list[Fields]:
        """All items."""
        return await _run(self._slot, lambda: list(self._inner.get()))

    async def put(self, newState: list[Fields]) -> None:
        """Replaces the list."""
        await _run(self._slot, lambda: self._inner.put(newState))

    async def appendValue(self, newState: Fields) -> None:
        """Adds an item."""
        await _run(self._slot, lambda: self._inner.appendValue(newState))

    async def appendList(self, newState: list[Fields]) -> None:
        """Adds items."""
        await _run(self._slot, lambda: self._inner.appendList(newState))

    async def clear(self) -> None:
        """Removes the list."""
        await _run(self._slot, self._inner.clear)


class AsyncMapState:
    """A map per key."""

    def __init__(self, inner: MapVariable, slot: Slot) -> None:
        self._inner, self._slot = inner, slot

    async def exists(self) -> bool:
        """Whether the map has entries."""
        return await _run(self._slot, self._inner.exists)

    async def getValue(self, key: Fields) -> Any:
        """The value of an entry as a row; None if there is none."""
        return await _run(self._slot, lambda: self._inner.getValue(key))

    async def containsKey(self, key: Fields) -> bool:
        """Whether the map has an entry."""
        return await _run(self._slot, lambda: self._inner.containsKey(key))

    async def updateValue(self, key: Fields, value: Fields) -> None:
        """Adds or replaces an entry."""
        await _run(self._slot, lambda: self._inner.updateValue(key, value))

    async def iterator(self) -> list[tuple[Fields, Fields]]:
        """All entries."""
        return await _run(self._slot, lambda: list(self._inner.iterator()))

    async def keys(self) -> list[Fields]:
        """The keys of all entries."""
        return await _run(self._slot, lambda: list(self._inner.keys()))

    async def values(self) -> list[Fields]:
        """The values of all entries."""
        return await _run(self._slot, lambda: list(self._inner.values()))

    async def removeKey(self, key: Fields) -> None:
        """Removes an entry."""
        await _run(self._slot, lambda: self._inner.removeKey(key))

    async def clear(self) -> None:
        """Removes all entries."""
        await _run(self._slot, self._inner.clear)


async def _run(slot: Slot, call: Callable[[], Result]) -> Result:
    """A call of a variable of the current key; it runs again after cells that it lacks were fetched."""
    key = CURRENT.get()
    while True:
        slot.keyed, slot.cells = key, key
        try:
            return call()
        except CellsMissing as missing:
            numbers = missing.numbers
        await key.fetch(numbers)


class AsyncHandle(TaskHandle):
    """Gives an asynchronous processor its variables and timers in a task."""

    def __init__(
        self,
        variables: tuple[Variable, ...],
        keyed: KeyedState,
        cells: KeyCells,
        time_mode: str,
        times: TimerValues,
    ) -> None:
        super().__init__(variables, keyed, cells, time_mode)
        self._slots: list[Slot] = []
        self._own = (keyed, cells)
        self.timerValues = times

    def getValueState(self, *args: Any, **kwargs: Any) -> Any:
        return self._awaited(AsyncValueState, super().getValueState(*args, **kwargs))

    def getListState(self, *args: Any, **kwargs: Any) -> Any:
        return self._awaited(AsyncListState, super().getListState(*args, **kwargs))

    def getMapState(self, *args: Any, **kwargs: Any) -> Any:
        return self._awaited(AsyncMapState, super().getMapState(*args, **kwargs))

    async def registerTimer(self, expiryTimestampMs: int) -> None:  # type: ignore[override]
        """Adds a timer of the current key."""
        self._keyed = CURRENT.get()
        super().registerTimer(expiryTimestampMs)

    async def deleteTimer(self, expiryTimestampMs: int) -> None:  # type: ignore[override]
        """Removes a timer of the current key."""
        self._keyed = CURRENT.get()
        super().deleteTimer(expiryTimestampMs)

    async def listTimers(self) -> list[int]:  # type: ignore[override]
        """The timers of the current key."""
        self._keyed = CURRENT.get()
        return list(super().listTimers())

    def leave_keys(self) -> None:
        """Returns the variables to the task's own key, for the clean-up of expired values."""
        self._keyed = self._own[0]
        for slot in self._slots:
            slot.keyed, slot.cells = self._own

    def _awaited(self, kind: Any, inner: Any) -> Any:
        slot: Slot = inner._slot
        self._slots.append(slot)
        return kind(inner, slot)
