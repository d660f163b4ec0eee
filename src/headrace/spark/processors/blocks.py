"""Blocks of a task's rows, ordered by key: where each key begins, and its rows as a lazy iterator.

A key may go on in the next block. Its rows are one iterator all the same, so that a key of any size fits.
Threads: one task's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.columns import HASH, TIME
from headrace.row.arrays import I64
from headrace.spark.processors.requests import Keys

BLOCK_ROWS = 1 << 14


@dataclass(frozen=True)
class Stage:
    """The columns of a task's rows: wire keys, the user's keys, and the user's columns with their names."""

    wire_keys: tuple[str, ...]
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    names: tuple[str, ...]
    key_names: tuple[str, ...] = ()
    shared: tuple[tuple[str, str], ...] = ()  # wire keys that are columns of the user, sent once

    def with_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with every wire key under its own name."""
        for wire_key, column in self.shared:
            batch = batch.append_column(wire_key, batch.column(column))
        return batch


class Block:
    """One Arrow batch of rows; `head` rows at its start belong to the key before."""

    def __init__(self, stage: Stage, batch: pa.RecordBatch, before: Block | None) -> None:
        self.stage, self.batch = stage, batch
        bounds = _bounds(stage, batch)
        self.head = 0
        if before is not None and before.last_key == self._identity(0):
            self.head = int(bounds[1]) if len(bounds) > 1 else batch.num_rows
            bounds = bounds[1:]
        self.starts = bounds.tolist()
        self.ends = [*self.starts[1:], batch.num_rows]
        self.headers: list[list[Any] | None] = []

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def wire_keys(self) -> Keys:
        """Hash and wire columns of each key that begins here."""
        columns = self.batch.select([HASH, *self.stage.wire_keys])
        if len(self.starts) < self.batch.num_rows:
            columns = columns.take(pa.array(self.starts, pa.int64()))
        return Keys(columns)

    @cached_property
    def keys(self) -> list[tuple[Any, ...]]:
        """The user's key of each key that begins here."""
        if not self.stage.keys:
            return [()] * len(self.starts)
        columns = self.batch.select(list(self.stage.keys))
        if len(self.starts) < self.batch.num_rows:
            columns = columns.take(pa.array(self.starts, pa.int64()))
        return list(zip(*map(values_of, columns.columns), strict=True))

    @cached_property
    def last_key(self) -> tuple[Any, ...]:
        return self._identity(self.batch.num_rows - 1)

    @cached_property
    def values(self) -> list[list[Any]]:
        """The user's columns as Python values."""
        return [values_of(self.batch.column(name)) for name in self.stage.columns]

    def table(self) -> pa.Table:
        """The user's columns under their names."""
        return pa.Table.from_batches([self.batch.select(list(self.stage.columns))]).rename_columns(
            list(self.stage.names)
        )

    def _identity(self, row: int) -> tuple[Any, ...]:
        names = (HASH, *self.stage.wire_keys)
        return tuple(self.batch.column(name)[row].as_py() for name in names)


def by_key(stage: Stage, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of a task ordered by key, in blocks; rows of one key stay in the order of arrival."""
    parts = list(batches)
    if not parts:
        return
    table = pa.Table.from_batches(parts)
    hashes = table.column(HASH).to_numpy()
    order = np.argsort(hashes, kind="stable")
    codes = [_codes(table.column(name)) for name in stage.wire_keys]
    same_hash = np.diff(hashes[order]) == 0
    if any((same_hash & (np.diff(code[order]) != 0)).any() for code in codes):  # keys share a hash
        order = np.lexsort((*codes, hashes))
    for start in range(0, len(order), BLOCK_ROWS):
        rows = table.take(pa.array(order[start : start + BLOCK_ROWS]))
        yield rows.combine_chunks().to_batches()[0]


def _codes(column: pa.ChunkedArray) -> I64:
    """Numbers that are equal where values are; null is a value."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    joined = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes: I64 = joined.indices.to_numpy().astype(np.int64)
    return codes


def _bounds(stage: Stage, batch: pa.RecordBatch) -> I64:
    """The first row of each key; equal hashes of different keys are separated."""
    changed = np.diff(batch.column(HASH).to_numpy()) != 0
    for name in stage.wire_keys:
        changed |= np.diff(_codes(batch.column(name))) != 0
    return np.concatenate([[0], np.flatnonzero(changed) + 1])


def values_of(column: pa.Array) -> list[Any]:
    """A column as a list of Python values."""
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    plain = column.null_count == 0 and is_number
    values: list[Any] = column.to_numpy().tolist() if plain else column.to_pylist()
    return values


def timely(batch: pa.RecordBatch, late_ms: int | None) -> pa.RecordBatch:
    """The rows that are not late: their time is after the watermark of late rows."""
    if late_ms is None or TIME not in batch.schema.names:
        return batch
    times = batch.column(TIME).cast(pa.int64())
    return batch.filter(pc.greater(times, pa.scalar(late_ms * 1000)))


class Feed:
    """The blocks of a task, one loaded ahead."""

    def __init__(self, stage: Stage, batches: Iterator[pa.RecordBatch], late_ms: int | None) -> None:
        self._stage, self._late_ms = stage, late_ms
        self.late_rows = 0
        self._batches = by_key(stage, self._timely(batches))
        self._ahead: Block | None = None
        self._last: Block | None = None

    def load(self) -> Block | None:
        """The next block, if any; it is not the current one yet."""
        if self._ahead is None:
            batch = next(self._batches, None)
            if batch is not None:
                self._ahead = self._last = Block(self._stage, batch, self._last)
        return self._ahead

    def _timely(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = timely(batch, self._late_ms)
            self.late_rows += batch.num_rows - rows.num_rows
            if rows.num_rows:
                yield self._stage.with_keys(rows)

    def advance(self) -> Block | None:
        """Makes the next block the current one."""
        block = self.load()
        self._ahead = None
        return block

    def continued(self) -> Iterator[tuple[Block, int]]:
        """The blocks that begin with rows of the current block's last key, and how many rows those are."""
        while (block := self.load()) is not None and block.head:
            yield block, block.head
            if block.head < block.batch.num_rows:
                block.head = 0
                return
            self._ahead = None
