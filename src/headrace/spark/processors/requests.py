"""Requests of a task to the state of its partition: headers of blocks, cells of the current key, reminders.

Invariants: answers arrive in the order of the requests, so a header that was requested early is delivered
before a later cell. Writes of a block are sent when the block is over; own writes win over what was read.
Threads: one task's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.plan.columns import HASH
from headrace.plan.work.cells import CELL, VALUE
from headrace.row.arrays import I64
from headrace.spark.processors.cells import HEADER
from headrace.spark.processors.convert import unpack_all
from headrace.spark.processors.keyed import Header, KeyedState, packed

_LOW_BITS = np.int64((1 << 54) - 1)  # the top ten bits of a hash decide the partition
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Talk(Protocol):
    """The way to the host's state of one partition."""

    schema: pa.Schema

    def ask(self, rows: pa.RecordBatch) -> None: ...

    def read(self) -> pa.Array: ...

    def write(self, rows: pa.RecordBatch) -> None: ...

    def remind(self, rows: pa.RecordBatch) -> None: ...

    def due(self, until_ms: int) -> Iterator[pa.RecordBatch]: ...


class Keys:
    """Keys of a block: hash and wire columns, one row per key."""

    def __init__(self, columns: pa.RecordBatch) -> None:
        self.columns = columns  # HASH, then the wire's key columns

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def headers(self, at: list[int] | None, values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
        """Rows of the wire for the headers of keys at these positions; None for all of them."""
        part = self.columns if at is None else self.columns.take(pa.array(at, pa.int64()))
        return _on_wire(part, np.full(len(values), HEADER, np.int64), values, schema)

    def rows(self, at: list[int], cells: list[int], values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
        """Rows of the wire for cells of keys at these positions."""
        part = self.columns.take(pa.array(at, pa.int64()))
        return _on_wire(part, np.array(cells, np.int64), values, schema)


def _on_wire(keys: pa.RecordBatch, cells: I64, values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    hashes = cell_hashes(keys.column(HASH).to_numpy(), cells)
    known = {HASH: pa.array(hashes), CELL: pa.array(cells), VALUE: values}
    columns = [known[name] if name in known else keys.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cell_hashes(hashes: I64, cells: I64) -> I64:
    """The hash of each cell: that of the key in its top bits, mixed with the cell's number below."""
    mixed = (cells.view(np.uint64) * _MIX).view(np.int64) & _LOW_BITS
    combined: I64 = np.bitwise_xor(hashes, mixed)
    return combined


class Requests:
    """Sends requests and delivers answers."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._expected: deque[Callable[[list[Header | None]], None]] = deque()
        self._keys: Keys | None = None
        self._number = 0
        self._cells: dict[tuple[int, int], bytes | None] = {}  # written in this block, by key and cell
        self._headers: dict[int, Header | None] = {}
        self._reminders: list[tuple[int, int]] = []

    # ── blocks ───────────────────────────────────────────────────────────────────────────────

    def ask_headers(self, keys: Keys, deliver: Callable[[list[Header | None]], None]) -> None:
        """Requests the headers of keys; `deliver` receives them when they are needed."""
        if not len(keys):
            deliver([])
            return
        self._talk.ask(keys.headers(None, pa.nulls(len(keys), pa.binary()), self._talk.schema))
        self._expected.append(deliver)

    def headers(self, keys: Keys) -> list[Header | None]:
        """The headers of keys, now."""
        headers: list[Header | None] = []
        self.ask_headers(keys, headers.extend)
        self.settle()
        return headers

    def settle(self) -> None:
        """Receives all answers that are on their way."""
        while self._expected:
            self._expected.popleft()(unpack_all(self._talk.read()))

    def begin_block(self, keys: Keys) -> None:
        self._keys = keys

    def at_key(self, number: int) -> None:
        """Makes a key of the block the current one."""
        self._number = number

    def load_key(self, keyed: KeyedState, number: int, header: Header | None) -> None:
        """Makes a key of the block the current one, with its state."""
        self._number = number
        keyed.load(header)

    def store_key(self, keyed: KeyedState) -> None:
        """Keeps what user code changed in the state of the current key."""
        if keyed.dirty:
            self._headers[self._number] = keyed.entries
            if keyed.reminders:
                self._reminders += [(self._number, at) for at in keyed.reminders]

    def put_some(self, headers: dict[int, Header], reminders: dict[int, list[int]]) -> None:
        """Replaces the headers of some keys of the block, by their positions."""
        self._headers.update(headers)
        self._reminders += [(number, at) for number, times_ms in reminders.items() for at in times_ms]

    def put_headers(self, headers: list[Header | None]) -> None:
        """Replaces the headers of all keys of the block; None deletes one."""
        self._headers = dict(enumerate(headers))

    def end_block(self) -> None:
        """Sends what the block wrote."""
        assert self._keys is not None
        if self._headers:
            at = None if len(self._headers) == len(self._keys) else list(self._headers)
            numbers = range(len(self._keys)) if at is None else at
            values = pa.array([packed(self._headers[number]) for number in numbers], pa.binary())
            self._talk.write(self._keys.headers(at, values, self._talk.schema))
        if self._cells:
            keys, cells = zip(*self._cells, strict=True)
            values = pa.array(list(self._cells.values()), pa.binary())
            self._talk.write(self._keys.rows(list(keys), list(cells), values, self._talk.schema))
        if self._reminders:
            self._remind(self._keys)
        self._headers, self._cells, self._reminders = {}, {}, []

    def _remind(self, keys: Keys) -> None:
        """Reminders keep the hash of their key, so that the host can return it."""
        unique = sorted(set(self._reminders))
        part = keys.columns.take(pa.array([at for at, _ in unique], pa.int64()))
        times = pa.array([time for _, time in unique], pa.int64())
        known = {CELL: times, VALUE: pa.nulls(len(unique), pa.binary())}
        schema = self._talk.schema
        columns = [known[name] if name in known else part.column(name) for name in schema.names]
        self._talk.remind(pa.RecordBatch.from_arrays(columns, schema=schema))

    def due(self, until_ms: int) -> Iterator[pa.RecordBatch]:
        self.settle()
        return self._talk.due(until_ms)

    # ── cells of the current key ─────────────────────────────────────────────────────────────

    def read(self, numbers: list[int]) -> list[bytes | None]:
        """Cells of the current key; own writes win."""
        assert self._keys is not None
        unknown = [number for number in numbers if (self._number, number) not in self._cells]
        read: dict[int, bytes | None] = {}
        if unknown:
            self.settle()
            nothing = pa.nulls(len(unknown), pa.binary())
            at = [self._number] * len(unknown)
            self._talk.ask(self._keys.rows(at, unknown, nothing, self._talk.schema))
            read = dict(zip(unknown, self._talk.read().to_pylist(), strict=True))
        return [self._cells.get((self._number, number), read.get(number)) for number in numbers]

    def cells_of(self, keys: Keys, at: list[int], cells: list[int]) -> list[bytes | None]:
        """Cells of several keys by one request: that of the key at each position."""
        if not cells:
            return []
        self.settle()
        self._talk.ask(keys.rows(at, cells, pa.nulls(len(cells), pa.binary()), self._talk.schema))
        values: list[bytes | None] = self._talk.read().to_pylist()
        return values

    def write(self, number: int, value: bytes | None) -> None:
        self._cells[self._number, number] = value
