"""The layout of a state row in 64-bit words, the same in memory and in segments.

    row = key nulls · key columns · flags · accumulators          (`width` words)
          └──── `key_width` words ────┘

A fixed-width value is one word: integers and times sign-extended, floats as IEEE bits of their own width,
booleans 0 or 1. A decimal is two words (low, high, two's complement). A string or binary value is one word
`offset << 24 | length` that points into the heap beside the rows. The words of a null are zero. Key nulls:
bit i of the null words is set when key column i is null. Flags: one bit per accumulator marks a value
(`has`). First and last have a second bit for a null value; sums that overflow to null have a second bit for
an overflow. Counts and moments need no bit, and rows without any bit have no flag word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.plan.spec import Accumulator, Field, OperatorSpec
from headrace.plan.types import is_variable, words

LENGTH_BITS = 24
LENGTH_MAX = (1 << LENGTH_BITS) - 1
UNFLAGGED = ("count", "moments")  # these have a value before the first row


@dataclass(frozen=True)
class KeySlot:
    """The position of a key column: its first word, and its bit in the null words."""

    field: Field
    word: int
    null_bit: int


@dataclass(frozen=True)
class AccumulatorSlot:
    """The position of an accumulator: first word, and bit numbers counted from the first flag word."""

    accumulator: Accumulator
    word: int
    has_bit: int
    second_bit: int


def _accumulator_words(accumulator: Accumulator) -> int:
    if accumulator.kind == "moments":
        return 3
    if accumulator.kind in ("first", "last"):
        return 1 + words(accumulator.type)  # event time, then the value
    return words(accumulator.type)


@dataclass(frozen=True)
class RowLayout:
    """The words of a row of `spec`."""

    spec: OperatorSpec

    @cached_property
    def null_words(self) -> int:
        return (len(self.spec.keys) + 63) // 64

    @cached_property
    def keys(self) -> tuple[KeySlot, ...]:
        slots, word = [], self.null_words
        for index, field in enumerate(self.spec.keys):
            slots.append(KeySlot(field, word, index))
            word += words(field.type)
        return tuple(slots)

    @cached_property
    def key_width(self) -> int:
        return self.null_words + sum(words(field.type) for field in self.spec.keys)

    @cached_property
    def flag_words(self) -> int:
        flagged = any(accumulator.kind not in UNFLAGGED for accumulator in self.spec.work.accumulators)
        return (2 * len(self.spec.work.accumulators) + 63) // 64 if flagged else 0

    @cached_property
    def accumulators(self) -> tuple[AccumulatorSlot, ...]:
        slots, word = [], self.key_width + self.flag_words
        for index, accumulator in enumerate(self.spec.work.accumulators):
            slots.append(AccumulatorSlot(accumulator, word, 2 * index, 2 * index + 1))
            word += _accumulator_words(accumulator)
        return tuple(slots)

    @cached_property
    def width(self) -> int:
        accumulated = sum(_accumulator_words(acc) for acc in self.spec.work.accumulators)
        return self.key_width + self.flag_words + accumulated

    @cached_property
    def variable_key_words(self) -> tuple[int, ...]:
        """Words of the key that point into the heap: equal keys have equal bytes, not equal words."""
        return tuple(slot.word for slot in self.keys if is_variable(slot.field.type))

    @cached_property
    def variable_words(self) -> tuple[int, ...]:
        """All words of the row that point into the heap; a zero word is an empty value."""
        values = (
            slot.word + (slot.accumulator.kind in ("first", "last"))
            for slot in self.accumulators
            if slot.accumulator.kind in ("min", "max", "first", "last")
            and is_variable(slot.accumulator.type)
        )
        return (*self.variable_key_words, *values)
