"""Conditions of a join beside equal keys: whose columns each reads, and where it is evaluated.

A condition over one stream is evaluated before the shuffle: a row that fails it matches no other row. A
condition over both is a filter above an inner join. Where rows without a partner come out, or left rows
only, the host evaluates it on pairs (`paired.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.spec import LEFT, RIGHT
from headrace.spark.language.columns import Resolved, case_insensitive, resolve
from headrace.spark.language.plans import items

Condition: TypeAlias = str | Column


@dataclass(frozen=True, eq=False)
class Conditions:
    """Conditions by the streams that they read; those over both are above the join, or of its pairs."""

    left: tuple[Column, ...] = ()
    right: tuple[Column, ...] = ()
    above: tuple[Column, ...] = ()
    of_pairs: tuple[Column, ...] = ()

    def of_side(self, side: int) -> tuple[Column, ...]:
        return self.left if side == LEFT else self.right

    def filtered(self, joined: DataFrame) -> DataFrame:
        """The join's result, where the conditions above it hold."""
        for condition in self.above:
            joined = joined.where(condition)
        return joined


NO_CONDITIONS = Conditions()


def conditions_of(
    left: DataFrame,
    right: DataFrame,
    where: Condition | Sequence[Condition] | None,
    how: str,
    keys: Collection[str] = (),
) -> Conditions:
    """Sorts conditions by the streams that they read; `keys` are names that mean the same in both."""
    if where is None:
        return NO_CONDITIONS
    sorted_out: dict[int | None, list[Column]] = {LEFT: [], RIGHT: [], None: []}
    for one in [where] if isinstance(where, str | Column) else where:
        condition = F.expr(one) if isinstance(one, str) else one
        side = _side_of((left, right), condition, keys)
        sorted_out[side].append(condition)
    of_one = (tuple(sorted_out[LEFT]), tuple(sorted_out[RIGHT]))
    both = tuple(sorted_out[None])
    return Conditions(*of_one, above=both) if how == "inner" else Conditions(*of_one, of_pairs=both)


def _side_of(streams: tuple[DataFrame, DataFrame], condition: Any, keys: Collection[str]) -> int | None:
    """The stream that has all columns of the condition; None: it needs both."""
    for side in (LEFT, RIGHT):
        try:
            resolved = resolve(streams[side], condition, "where")
        except QueryError:
            continue
        _check(resolved)
        for column in items(resolved.expression.references().toSeq()):
            refuse_ambiguous(str(column.name()), streams, keys)
        return side
    return None


def refuse_ambiguous(name: str, streams: tuple[DataFrame, DataFrame], keys: Collection[str]) -> None:
    """Refuses a name that means one column of each stream, unless it is a key."""
    fold = str.casefold if case_insensitive(streams[LEFT]) else str
    in_both = all(fold(name) in {fold(column) for column in df.columns} for df in streams)
    if in_both and fold(name) not in {fold(key) for key in keys}:
        raise QueryError(
            f"where: both streams have a column {name}",
            hint=f'rename one of them before the join: .withColumnRenamed("{name}", "…")',
        )


def _check(condition: Resolved) -> None:
    if not isinstance(condition.type, T.BooleanType):
        raise QueryError(
            f"where: {condition.name} is {condition.type.simpleString()}, not a condition",
            hint='compare it with something: where="price > 100"',
        )
