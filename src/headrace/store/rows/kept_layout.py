"""Rows kept as they are: their layout in words, Arrow to rows and back. Pure functions.

    row = key nulls · key columns · input nulls · event time · [side] · inputs · [hash]
          └──── `key_width` words ────┘

Keys and inputs lie as in `store.layout`; bit i of the input null words is set when input i is null. The
side (joins) is 0 or 1. Runs of kept rows may hold any number of rows of one key: every row counts. A layout
that is `hashed` keeps the hash as a word too, because its runs are ordered by event time instead of hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.kernels.core.order import by_hash
from headrace.kernels.segments.merge import take_rows
from headrace.plan.spec import HASH, SIDE, TIME, Field, OperatorSpec, input_schema
from headrace.plan.types import is_variable, words
from headrace.row.arrays import I64, U8, U64, Flags
from headrace.row.layout import LENGTH_BITS, KeySlot, RowLayout
from headrace.row.run import Run
from headrace.store.rows.arrow import Column, array_of, column_of
from headrace.store.rows.take import rows_at

_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class InputSlot:
    """Where an input lies: its first word, the word of its null bit and the bit's number."""

    field: Field
    word: int
    null_word: int
    null_bit: int


@dataclass(frozen=True)
class KeptLayout:
    """The words of a kept row of `spec`; a `Shape`."""

    spec: OperatorSpec
    hashed: bool = False

    @cached_property
    def _row(self) -> RowLayout:
        return RowLayout(self.spec)

    @property
    def keys(self) -> tuple[KeySlot, ...]:
        return self._row.keys

    @property
    def key_width(self) -> int:
        return self._row.key_width

    @property
    def variable_key_words(self) -> tuple[int, ...]:
        return self._row.variable_key_words

    @cached_property
    def time_word(self) -> int:
        return self.key_width + (len(self.spec.inputs) + 63) // 64

    @cached_property
    def match_word(self) -> int:
        """Where the time lies by which a row of a session is found again."""
        until = None if self.spec.window is None else self.spec.window.until
        return self.time_word if until is None else self.input(until).word

    @cached_property
    def side_word(self) -> int | None:
        """Where the side of a join's row lies."""
        return self.time_word + 1 if self.spec.work.has_sides else None

    @cached_property
    def inputs(self) -> tuple[InputSlot, ...]:
        slots, word = [], self.time_word + (2 if self.spec.work.has_sides else 1)
        for index, field in enumerate(self.spec.inputs):
            slots.append(InputSlot(field, word, self.key_width + index // 64, index % 64))
            word += words(field.type)
        return tuple(slots)

    @cached_property
    def hash_word(self) -> int:
        """Where a hashed layout keeps the hash: last."""
        inputs_width = sum(words(field.type) for field in self.spec.inputs)
        return self.time_word + (2 if self.spec.work.has_sides else 1) + inputs_width

    @cached_property
    def width(self) -> int:
        return self.hash_word + self.hashed

    @cached_property
    def variable_words(self) -> tuple[int, ...]:
        inputs = (slot.word for slot in self.inputs if is_variable(slot.field.type))
        return (*self.variable_key_words, *inputs)

    def input(self, name: str) -> InputSlot:
        return next(slot for slot in self.inputs if slot.field.name == name)


def pieces_of(layout: KeptLayout, batch: pa.RecordBatch) -> Run:
    """The rows of a batch of the operator's input schema, in their order; `hashes` are the hashes."""
    rows = _Rows(np.zeros((batch.num_rows, layout.width), np.uint64))
    for key in layout.keys:
        column = column_of(batch.column(key.field.name), key.field.type)
        rows.put(column, key.word, key.null_bit // 64, key.null_bit % 64)
    for slot in layout.inputs:
        column = column_of(batch.column(slot.field.name), slot.field.type)
        rows.put(column, slot.word, slot.null_word, slot.null_bit)
    if layout.spec.timed:
        rows.words[:, layout.time_word] = column_of(batch.column(TIME), "timestamp").words[:, 0]
    if layout.side_word is not None:
        rows.words[:, layout.side_word] = column_of(batch.column(SIDE), "int8").words[:, 0]
    # A copy: a view would keep all of the batch's memory, and rows may wait here for long.
    hashes = column_of(batch.column(HASH), "int64").words.reshape(-1).copy()
    if layout.hashed:
        rows.words[:, layout.hash_word] = hashes
    return Run(hashes, rows.words, rows.heap())


def run_of(layout: KeptLayout, batch: pa.RecordBatch) -> Run:
    """The rows of a batch of the operator's input schema, ordered by hash; a key may have many."""
    return ordered(pieces_of(layout, batch))


def ordered(run: Run) -> Run:
    """The run's rows sorted by their order key; rows of equal order keys keep their order."""
    return run if is_ordered(run) else rows_at(run, by_hash(run.order))


def is_ordered(run: Run) -> bool:
    """Whether the rows are in order as they are: those of one file, or of a window that is one group."""
    return bool((run.order[1:] >= run.order[:-1]).all())


def by_time(layout: KeptLayout, run: Run) -> Run:
    """The same rows with the biased event time as their order key, for hashed layouts."""
    return Run(time_key(times_in(layout, run).view(np.uint64)), run.words, run.heap)


def with_hashes(layout: KeptLayout, run: Run) -> Run:
    """The same rows with their hash as the order key, for hashed layouts; not ordered."""
    return Run(np.ascontiguousarray(run.words[:, layout.hash_word]), run.words, run.heap)


def time_key(times: U64) -> U64:
    """Event times as unsigned order keys: later times have larger keys."""
    return times ^ _SIGN


def time_bound(time_us: int) -> int:
    """The order key of one event time."""
    return time_us + (1 << 63)


def times_in(layout: KeptLayout, run: Run) -> I64:
    """The event time of each row in microseconds."""
    times: I64 = np.ascontiguousarray(run.words[:, layout.time_word]).view(np.int64)
    return times


def match_times_in(layout: KeptLayout, run: Run) -> I64:
    """The time by which each row of a session is found again."""
    times: I64 = np.ascontiguousarray(run.words[:, layout.match_word]).view(np.int64)
    return times


def sides_in(layout: KeptLayout, run: Run) -> U64:
    """The side of each row of a join."""
    assert layout.side_word is not None, "only rows of a join have a side"
    return np.ascontiguousarray(run.words[:, layout.side_word])


def rows_of(layout: KeptLayout, run: Run) -> pa.RecordBatch:
    """The rows of a run as a batch of the operator's input schema."""
    spec, columns = layout.spec, []
    hashes = run.words[:, layout.hash_word] if layout.hashed else run.order
    columns.append(array_of("int64", np.ascontiguousarray(hashes).reshape(-1, 1), 0, run.heap, None))
    if spec.timed:
        columns.append(array_of("timestamp", run.words, layout.time_word, run.heap, None))
    if layout.side_word is not None:
        columns.append(array_of("int8", run.words, layout.side_word, run.heap, None))
    columns += [key_array(key, run) for key in layout.keys]
    columns += [input_array(slot, run) for slot in layout.inputs]
    return pa.RecordBatch.from_arrays(columns, schema=input_schema(spec))


def key_array(slot: KeySlot, run: Run) -> pa.Array:
    """One key column of a run's rows."""
    null_word, bit = slot.null_bit // 64, slot.null_bit % 64
    return array_of(slot.field.type, run.words, slot.word, run.heap, valid_in(run, null_word, bit))


def input_array(slot: InputSlot, run: Run) -> pa.Array:
    """One input of a run's rows."""
    valid = valid_in(run, slot.null_word, slot.null_bit)
    return array_of(slot.field.type, run.words, slot.word, run.heap, valid)


def valid_in(run: Run, null_word: int, null_bit: int) -> Flags:
    """In which rows a null bit is not set."""
    valid: Flags = (run.words[:, null_word] & np.uint64(1 << null_bit)) == 0
    return valid


def subset(layout: KeptLayout, run: Run, rows: I64 | Flags | slice) -> Run:
    """Some rows of a run over a heap that holds only what they point at."""
    if isinstance(rows, slice):
        part = Run(run.order[rows], run.words[rows], run.heap)
    else:
        ids = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, np.int64)
        part = rows_at(run, ids)
    if not layout.variable_words:
        return Run(part.order, part.words, run.heap[:0])
    variable = np.array(layout.variable_words, np.int64)
    return Run(part.order, *take_rows(part.words, run.heap, 0, len(part), variable))


@dataclass(frozen=True)
class _Rows:
    """Rows being put together column by column."""

    words: U64
    _heaps: list[U8]

    def __init__(self, words: U64) -> None:
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "_heaps", [])

    def put(self, column: Column, word: int, null_word: int, null_bit: int) -> None:
        part = column.words
        if len(column.heap):
            moved = np.uint64(sum(map(len, self._heaps)) << LENGTH_BITS)
            part = np.where(part == 0, part, part + moved)
            self._heaps.append(column.heap)
        end = word + part.shape[1]
        if not len(column.valid):
            self.words[:, word:end] = part
            return
        self.words[:, word:end] = np.where(column.valid[:, None], part, np.uint64(0))
        self.words[:, null_word] |= (~column.valid).astype(np.uint64) << np.uint64(null_bit)

    def heap(self) -> U8:
        if not self._heaps:
            return np.zeros(0, np.uint8)
        return np.concatenate(self._heaps)  # a copy, for the same reason
