"""Evaluates a condition over pairs of rows, as Spark would. Pure computation over Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ArithmeticOverflow
from headrace.plan.spec import LEFT, RIGHT, Field
from headrace.plan.types import arrow_type
from headrace.plan.work.joins.condition import COMPARISONS, INPUTS, Term
from headrace.row.arrays import I64, Flags
from headrace.store.rows.kept_values import KeptValues

# Values of either side, and the numbers of a pair's rows.
Pairs = dict[int, tuple[KeptValues, I64]]

_KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": pc.equal,
    "less": pc.less,
    "less_equal": pc.less_equal,
    "greater": pc.greater,
    "greater_equal": pc.greater_equal,
    "add": pc.add_checked,
    "subtract": pc.subtract_checked,
    "multiply": pc.multiply_checked,
}


def holds(term: Term, pairs: Pairs) -> Flags:
    """In which pairs the condition is true."""
    count = len(pairs[LEFT][1])
    if not count:
        return np.zeros(0, np.bool_)
    truth = _Evaluation(pairs, count).of(term)
    flags: Flags = pc.fill_null(truth, False).to_numpy(zero_copy_only=False)
    return flags


@dataclass(frozen=True)
class _Evaluation:
    """Arrays of one value per pair."""

    pairs: Pairs
    count: int

    def of(self, term: Term) -> pa.Array:
        name = term[0]
        if name in INPUTS:
            values, numbers = self.pairs[LEFT if name == "left" else RIGHT]
            return values.column(Field(term[1], term[2]), numbers, None)
        if name == "literal":
            return pa.repeat(pa.scalar(term[2], arrow_type(term[1])), self.count)
        parts = [self.of(part) for part in term[1:] if isinstance(part, tuple)]
        return self._computed(name, term, parts)

    def _computed(self, name: str, term: Term, parts: list[pa.Array]) -> pa.Array:
        if name in ("and", "or"):
            return (pc.and_kleene if name == "and" else pc.or_kleene)(*parts)
        if name == "not":
            return pc.invert(parts[0])
        if name == "null":
            return pc.is_null(parts[0])
        if name == "same":
            return _same(*parts)
        if name in COMPARISONS:
            return compared(name, *parts)
        if name == "cast":
            return pc.cast(parts[0], arrow_type(term[1]), safe=False)
        return _arithmetic(name, parts)


def compared(name: str, one: pa.Array, other: pa.Array) -> pa.Array:
    """A comparison; of floats as in Spark."""
    if pa.types.is_boolean(one.type):
        one, other = one.cast(pa.int8()), other.cast(pa.int8())
    if not pa.types.is_floating(one.type):
        return _KERNELS[name](one, other)
    nans = pc.is_nan(one), pc.is_nan(other)
    plain = _KERNELS[name](one, other)
    if not any(pc.any(flags).as_py() for flags in nans):
        return plain
    # By which of the two are NaN; where neither is, by value.
    ranks = [flags.cast(pa.int8()) for flags in nans]
    return pc.if_else(pc.or_(*nans), _KERNELS[name](*ranks), plain)


def _same(one: pa.Array, other: pa.Array) -> pa.Array:
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(both_null, pc.fill_null(compared("equal", one, other), False))


def _arithmetic(name: str, parts: list[pa.Array]) -> pa.Array:
    try:
        return pc.abs_checked(parts[0]) if name == "abs" else _KERNELS[name](*parts)
    except pa.ArrowInvalid as error:
        raise ArithmeticOverflow(
            f"a condition of a join overflowed: {name} of {parts[0].type}",
            hint='cast before computing, such as where="double(a) + b > 1"; ANSI mode raises, as in Spark',
        ) from error
