"""Which kernel folds which accumulator, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.errors import ArithmeticOverflow
from headrace.kernels.core.bytes import total
from headrace.kernels.tables import accumulate as kernel
from headrace.kernels.tables import combine
from headrace.plan.spec import Accumulator, partial_name
from headrace.plan.types import decimal_parts, is_decimal, is_variable
from headrace.row.arrays import U8, U64, Ids
from headrace.row.layout import AccumulatorSlot, RowLayout
from headrace.store.rows.arrow import Column

_OVERFLOW = {"wrap": kernel.WRAP, "error": kernel.ERROR, "null": kernel.NULL}


@dataclass(frozen=True)
class Arena:
    """What a fold writes to: rows, the heap beside them and its counters (`kernels.bytes`)."""

    rows: U64
    heap: U8
    counters: Ids


@dataclass(frozen=True)
class Fold:
    """One accumulator of a layout, ready to run."""

    accumulator: Accumulator
    word: int
    flag: int
    has: np.uint64
    second: np.uint64
    column: str | None  # that it reads; None: it counts rows
    weighted: bool = False  # a count: the column has the number of rows

    @classmethod
    def of(cls, layout: RowLayout, slot: AccumulatorSlot) -> Fold:
        combined = layout.spec.work.combined
        return cls(
            slot.accumulator,
            slot.word,
            layout.key_width + slot.has_bit // 64,
            np.uint64(1 << slot.has_bit % 64),
            np.uint64(1 << slot.second_bit % 64),
            partial_name(layout.accumulators.index(slot)) if combined else slot.accumulator.input,
            combined and slot.accumulator.kind == "count",
        )

    @property
    def column_type(self) -> str:
        """The type that its input column is read as."""
        return "double" if self.accumulator.kind == "moments" else self.accumulator.type

    @property
    def is_timed(self) -> bool:
        return self.accumulator.kind in ("first", "last")

    def heap_bytes(self, column: Column) -> int:
        """Heap bytes that folding this column takes at most."""
        holds = self.accumulator.kind in ("min", "max", "first", "last") and is_variable(self.column_type)
        return int(total(column.words.reshape(-1))) if holds else 0

    def run(self, to: Arena, ids: Ids, column: Column, times: Column) -> None:
        """Fold a column, row by row in its order; heap and rows have room for it."""
        kind = self.accumulator.kind
        words, heap, valid = column.words, column.heap, column.valid
        if self.weighted:
            kernel.count_many(to.rows, ids, self.word, words)
        elif kind == "count":
            kernel.count(to.rows, ids, self.word, valid)
        elif kind == "sum":
            self._sum(to.rows, ids, column)
        elif kind == "moments":
            kernel.moments(to.rows, ids, self.word, words, valid)
        elif self.is_timed:
            how = (self.second, comparison(self.column_type), kind == "last")
            place = (to.rows, to.heap, to.counters, ids, self.word, self.flag, self.has)
            at = times.words.reshape(-1).view(np.int64)
            kernel.by_time(*place, *how, at, times.valid, words, heap, valid)
        else:
            place = (to.rows, to.heap, to.counters, ids, self.word, self.flag, self.has)
            code, largest = comparison(self.column_type), kind == "max"
            kernel.extreme(*place, code, largest, words, heap, valid)

    def _sum(self, rows: U64, ids: Ids, column: Column) -> None:
        of, words, valid = self.accumulator.type, column.words, column.valid
        place, overflow = (self.word, self.flag, self.has), self._overflow
        if of == "double":
            kernel.sum_double(rows, ids, *place, words, valid)
            fits = True
        elif is_decimal(of):
            limit = decimal_limit(of)
            fits = kernel.sum_decimal(rows, ids, *place, self.second, overflow, *limit, words, valid)
        else:
            fits = kernel.sum_int(rows, ids, *place, self.second, overflow, words, valid)
        if not fits:
            raise self.overflowed()

    @property
    def _overflow(self) -> int:
        return kernel.ERROR if self.accumulator.type == "duration" else _OVERFLOW[self.accumulator.overflow]

    def overflowed(self) -> ArithmeticOverflow:
        return ArithmeticOverflow(
            f"the sum of {self.accumulator.input} left the range of {self.accumulator.type}",
            hint="cast the column to a wider type, or set spark.sql.ansi.enabled to false",
        )

    def combination(self) -> list[int]:
        """Its line in the plan of `kernels.combine`."""
        kind, of = self.accumulator.kind, self.accumulator.type
        line = [combine.COUNT, self.word, self.flag, int(self.has), int(self.second), 0, 0, 0, 0]
        if kind == "sum":
            line[combine.HOW] = self._overflow
            line[combine.OP] = combine.SUM_DOUBLE if of == "double" else combine.SUM_INT
            if is_decimal(of):
                line[combine.OP] = combine.SUM_DECIMAL
                line[combine.LIMIT_LOW], line[combine.LIMIT_HIGH] = map(int, decimal_limit(of))
        elif kind == "moments":
            line[combine.OP] = combine.MOMENTS
        elif kind != "count":
            line[combine.OP] = combine.BY_TIME if self.is_timed else combine.EXTREME
            line[combine.CODE] = comparison(self.column_type)
            line[combine.HOW] = kind in ("max", "last")
        return line


def combine_plan(folds: Sequence[Fold]) -> U64:
    """How whole rows of these accumulators are combined (see `kernels.combine`)."""
    lines = [fold.combination() for fold in folds]
    return np.array(lines, np.uint64).reshape(len(lines), combine.PLAN_COLUMNS)


def comparison(kind: str) -> int:
    """How values of a type compare (see `kernels.accumulate`)."""
    if is_variable(kind):
        return kernel.VARIABLE
    if is_decimal(kind):
        return kernel.DECIMAL
    return {"double": kernel.DOUBLE, "float": kernel.FLOAT}.get(kind, kernel.SIGNED)


def decimal_limit(kind: str) -> tuple[np.uint64, np.uint64]:
    """10^precision as two words: the first magnitude that does not fit."""
    limit = 10 ** decimal_parts(kind)[0]
    return np.uint64(limit & 0xFFFFFFFFFFFFFFFF), np.uint64(limit >> 64)
