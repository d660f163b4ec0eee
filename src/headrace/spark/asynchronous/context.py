"""The key whose record runs: its state, and the cells of its block.

User code sees one set of state variables for all keys. `CURRENT` is the key of the running coroutine.
asyncio copies it into every task, so children of `gather` see the key of their record.
Threads: one task's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from headrace.spark.processors.keyed import Header, KeyedState
from headrace.spark.processors.requests import Keys

CURRENT: ContextVar[KeyContext] = ContextVar("headrace_key")


class CellsMissing(Exception):
    """A state call needs cells that are not in memory; it runs again once they are."""

    def __init__(self, numbers: list[int]) -> None:
        super().__init__(numbers)
        self.numbers = numbers


class CellRequest:
    """Cells of one key that a coroutine waits for."""

    __slots__ = ("future", "key", "numbers")

    def __init__(self, key: KeyContext, numbers: list[int], future: asyncio.Future[None]) -> None:
        self.key, self.numbers, self.future = key, numbers, future

    def deliver(self, values: list[bytes | None]) -> None:
        """Stores the values and continues the coroutine."""
        cells = self.key.block.cells
        for number, value in zip(self.numbers, values, strict=True):
            cells.setdefault((self.key.number, number), value)
        if not self.future.done():
            self.future.set_result(None)


class BlockState:
    """Keys that were loaded together: what their calls wrote, and the cells that were read or written."""

    def __init__(self, keys: Keys, width: int, now_ms: int, request: Callable[[CellRequest], None]) -> None:
        self.keys, self.width, self.now_ms, self.request = keys, width, now_ms, request
        self.in_flight: list[KeyContext] = []  # keys whose calls had not ended when the next key came
        self.headers: dict[int, Header] = {}
        self.reminders: dict[int, list[int]] = {}
        self.cells: dict[tuple[int, int], bytes | None] = {}  # by key and cell: fetched, or written
        self.written: set[tuple[int, int]] = set()

    def store(self, key: KeyContext) -> None:
        """Keeps what the calls of a key have changed; they are complete."""
        self.headers[key.number] = key.entries
        if key.reminders:
            self.reminders[key.number] = key.reminders


class KeyContext(KeyedState):
    """The state of one key in flight; a `KeyCells` over the cells of its block."""

    __slots__ = ("block",)

    def __init__(self, block: BlockState, number: int, key: Any, header: Header | None) -> None:
        self.block, self.number, self.key = block, number, key
        self.width, self.now_ms, self.reminders = block.width, block.now_ms, []
        if header is not None and len(header) == block.width:
            self.entries, self.dirty = header, False
        else:
            self.load(header)

    def read(self, numbers: list[int]) -> list[bytes | None]:
        """The values of cells; raises `CellsMissing` if some are not in memory."""
        cells, at = self.block.cells, self.number
        missing = [number for number in numbers if (at, number) not in cells]
        if missing:
            raise CellsMissing(missing)
        return [cells[at, number] for number in numbers]

    def write(self, number: int, value: bytes | None) -> None:
        self.block.cells[self.number, number] = value
        self.block.written.add((self.number, number))

    async def fetch(self, numbers: list[int]) -> None:
        """Brings cells into memory; requests of many keys travel together."""
        future = asyncio.get_running_loop().create_future()
        self.block.request(CellRequest(self, numbers, future))
        await future
