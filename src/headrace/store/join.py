"""What a windowed join makes of whole groups of rows: every pair, and for outer joins the rows without one.

Pure computation, shared by all stores that keep rows. Pairs are written out in batches of a bounded number
of rows and bytes, so that a key with a million pairs takes no more memory than a million keys with one.
Only the columns of rows that come out are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.kernels import join as kernel
from headrace.spec import TIME, Field, Join, output_schema
from headrace.store.arrow import array_of
from headrace.store.kept import I64, Flags, KeptLayout, sides_in
from headrace.store.kept_groups import Computation, Groups, instants
from headrace.store.layout import LENGTH_MAX
from headrace.store.run import U64, Run
from headrace.types import words

PAIRS_MAX = 1 << 16  # pairs per Arrow batch of results
PAIR_BYTES_MAX = 32 << 20  # of strings in a batch


@dataclass(frozen=True)
class _Pairs:
    """Row numbers of both sides, -1 where a side has none, and the group of each pair."""

    lefts: I64
    rights: I64
    groups: I64

    def __len__(self) -> int:
        return len(self.lefts)

    def part(self, start: int, end: int) -> _Pairs:
        return _Pairs(self.lefts[start:end], self.rights[start:end], self.groups[start:end])


def join_of(layout: KeptLayout, pairs_max: int = PAIRS_MAX, bytes_max: int = PAIR_BYTES_MAX) -> Computation:
    """The computation of an operator that is a join."""
    join = layout.spec.join
    assert join is not None

    def joined(rows: Run, groups: Groups) -> Iterator[pa.RecordBatch]:
        values = _Values(layout, rows)
        for pairs in _pairs(join, sides_in(layout, rows).astype(np.int8), groups, pairs_max):
            for part in _within(pairs, values, bytes_max):
                yield _batch(join, values, groups, part)

    return joined


def _pairs(join: Join, sides: np.ndarray, groups: Groups, pairs_max: int) -> Iterator[_Pairs]:
    keeps = join.how in ("left", "full"), join.how in ("right", "full")
    order, begins = kernel.arrange(groups.of_row, sides, len(groups))
    before = kernel.count(begins, *keeps)
    total = int(before[-1])
    for start in range(0, total, pairs_max):
        lefts, rights, of = (np.empty(min(pairs_max, total - start), np.int64) for _ in range(3))
        kernel.write(order, begins, before, *keeps, start, lefts, rights, of)
        yield _Pairs(lefts, rights, of)


def _within(pairs: _Pairs, values: _Values, bytes_max: int) -> Iterator[_Pairs]:
    """The pairs, cut in halves until a part's strings fit."""
    if len(pairs) <= 1 or values.held(pairs.lefts) + values.held(pairs.rights) <= bytes_max:
        yield pairs
        return
    half = len(pairs) // 2
    yield from _within(pairs.part(0, half), values, bytes_max)
    yield from _within(pairs.part(half, len(pairs)), values, bytes_max)


def _batch(join: Join, values: _Values, groups: Groups, pairs: _Pairs) -> pa.RecordBatch:
    there = _there(pairs.lefts)
    either = pairs.lefts if there is None else np.where(there, pairs.lefts, pairs.rights)
    columns = [values.key(number, either) for number in range(len(values.layout.keys))]
    columns += [instants(bounds[pairs.groups]) for bounds in (groups.starts_us, groups.ends_us)]
    for fields, taken in ((join.left, pairs.lefts), (join.right, pairs.rights)):
        there = _there(taken)
        rows = taken if there is None else np.where(there, taken, 0)
        columns += [values.column(field, rows, there) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=output_schema(values.layout.spec))


def _there(taken: I64) -> Flags | None:
    """Which rows are there; None: all of them."""
    there = taken >= 0
    return None if there.all() else there


@dataclass(frozen=True)
class _Values:
    """The columns of kept rows, taken by row numbers."""

    layout: KeptLayout
    rows: Run

    @cached_property
    def _row_bytes(self) -> I64:
        """Bytes of strings in each row, and a zero that the row number -1 finds."""
        held = np.zeros(len(self.rows) + 1, np.int64)
        for word in self.layout.variable_words:
            held[:-1] += (self.rows.words[:, word] & np.uint64(LENGTH_MAX)).view(np.int64)
        return held

    @cached_property
    def _nulls(self) -> dict[int, U64]:
        """The null words in which any row has a null."""
        words = {slot.null_word for slot in self.layout.inputs}
        words |= {slot.null_bit // 64 for slot in self.layout.keys}
        held = {word: np.ascontiguousarray(self.rows.words[:, word]) for word in words}
        return {word: bits for word, bits in held.items() if bits.any()}

    def held(self, taken: I64) -> int:
        return int(self._row_bytes[taken].sum()) if self.layout.variable_words else 0

    def key(self, number: int, taken: I64) -> pa.Array:
        slot = self.layout.keys[number]
        valid = self._valid(slot.null_bit // 64, slot.null_bit % 64, taken)
        return self._array(slot.field.type, slot.word, taken, valid)

    def column(self, field: Field, taken: I64, there: Flags | None) -> pa.Array:
        """A column of one side; null where the side is not there."""
        if field.name == TIME:
            return self._array(field.type, self.layout.time_word, taken, there)
        slot = self.layout.input(field.name)
        valid = self._valid(slot.null_word, slot.null_bit, taken)
        if valid is not None and there is not None:
            valid &= there
        return self._array(field.type, slot.word, taken, there if valid is None else valid)

    def _valid(self, null_word: int, null_bit: int, taken: I64) -> Flags | None:
        """In which rows a null bit is not set; None: in all of them."""
        nulls = self._nulls.get(null_word)
        if nulls is None:
            return None
        valid: Flags = (nulls[taken] & np.uint64(1 << null_bit)) == 0
        return valid

    def _array(self, kind: str, word: int, taken: I64, valid: Flags | None) -> pa.Array:
        width = words(kind)
        held = self.rows.words[:, word : word + width] if width > 1 else self.rows.words[:, word]
        found = held[taken].reshape(-1, width)
        if valid is not None and not valid.all():
            found[~valid] = 0
        return array_of(kind, found, 0, self.rows.heap, valid)
