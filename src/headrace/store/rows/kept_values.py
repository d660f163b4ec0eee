"""The columns of kept rows as Arrow arrays, by row numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.plan.spec import TIME, Field
from headrace.plan.types import words
from headrace.row.arrays import I64, U64, Flags
from headrace.row.layout import LENGTH_MAX
from headrace.row.run import Run
from headrace.store.rows.arrow import array_of
from headrace.store.rows.kept_layout import KeptLayout


def present_of(numbers: I64) -> Flags | None:
    """Which row numbers are rows; None: all of them."""
    present = numbers >= 0
    return None if present.all() else present


@dataclass(frozen=True)
class KeptValues:
    """The columns of kept rows; the row number -1 stands for no row."""

    layout: KeptLayout
    rows: Run

    @cached_property
    def _row_bytes(self) -> I64:
        """Bytes of strings in each row, and a zero that the row number -1 finds."""
        sizes = np.zeros(len(self.rows) + 1, np.int64)
        for word in self.layout.variable_words:
            sizes[:-1] += (self.rows.words[:, word] & np.uint64(LENGTH_MAX)).view(np.int64)
        return sizes

    @cached_property
    def _nulls(self) -> dict[int, U64]:
        """The null words in which any row has a null."""
        words = {slot.null_word for slot in self.layout.inputs}
        words |= {slot.null_bit // 64 for slot in self.layout.keys}
        bits_of = {word: np.ascontiguousarray(self.rows.words[:, word]) for word in words}
        return {word: bits for word, bits in bits_of.items() if bits.any()}

    def string_bytes(self, numbers: I64) -> int:
        return int(self._row_bytes[numbers].sum()) if self.layout.variable_words else 0

    def key(self, number: int, numbers: I64) -> pa.Array:
        slot = self.layout.keys[number]
        valid = self._valid(slot.null_bit // 64, slot.null_bit % 64, numbers)
        return self._array(slot.field.type, slot.word, numbers, valid)

    def column(self, field: Field, numbers: I64, present: Flags | None) -> pa.Array:
        """A column of one side; null if the pair has no row of that side."""
        if field.name == TIME:
            return self._array(field.type, self.layout.time_word, numbers, present)
        slot = self.layout.input(field.name)
        valid = self._valid(slot.null_word, slot.null_bit, numbers)
        if valid is not None and present is not None:
            valid &= present
        return self._array(field.type, slot.word, numbers, present if valid is None else valid)

    def _valid(self, null_word: int, null_bit: int, numbers: I64) -> Flags | None:
        """In which rows a null bit is not set; None: in all of them."""
        nulls = self._nulls.get(null_word)
        if nulls is None:
            return None
        valid: Flags = (nulls[numbers] & np.uint64(1 << null_bit)) == 0
        return valid

    def _array(self, kind: str, word: int, numbers: I64, valid: Flags | None) -> pa.Array:
        width = words(kind)
        stored = self.rows.words[:, word : word + width] if width > 1 else self.rows.words[:, word]
        picked = stored[numbers].reshape(-1, width)
        if valid is not None and not valid.all():
            picked[~valid] = 0
        return array_of(kind, picked, 0, self.rows.heap, valid)
