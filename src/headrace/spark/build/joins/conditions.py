"""Conditions of a join beside equal keys: whose columns each reads, and where it is evaluated.

A condition over one stream is evaluated before the shuffle: a row that fails it matches no other row. A
condition over both is a filter above the join, which is right for inner joins only: the host does not
evaluate Spark's expressions, so it cannot find out which rows have no partner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.spec import LEFT, RIGHT
from headrace.spark.language.columns import Resolved, resolve

Condition: TypeAlias = str | Column


@dataclass(frozen=True, eq=False)
class Conditions:
    """Conditions by the streams that they read."""

    left: tuple[Column, ...] = ()
    right: tuple[Column, ...] = ()
    both: tuple[Column, ...] = ()

    def of_side(self, side: int) -> tuple[Column, ...]:
        return self.left if side == LEFT else self.right

    def above(self, joined: DataFrame) -> DataFrame:
        """The join's result, where the conditions over both streams hold."""
        for condition in self.both:
            joined = joined.where(condition)
        return joined


NO_CONDITIONS = Conditions()


def conditions_of(
    left: DataFrame, right: DataFrame, where: Condition | Sequence[Condition] | None, how: str
) -> Conditions:
    """Sorts conditions; raises for one over both streams where rows without a partner come out."""
    if where is None:
        return NO_CONDITIONS
    sorted_out: dict[int | None, list[Column]] = {LEFT: [], RIGHT: [], None: []}
    for one in [where] if isinstance(where, str | Column) else where:
        condition = F.expr(one) if isinstance(one, str) else one
        side = _side_of(left, right, condition)
        if side is None and how != "inner":
            raise QueryError(
                f'how="{how}": the condition {one} reads columns of both streams',
                hint="write conditions over one stream each, as a list; or join inner, which takes any",
            )
        sorted_out[side].append(condition)
    return Conditions(*(tuple(sorted_out[side]) for side in (LEFT, RIGHT, None)))


def _side_of(left: DataFrame, right: DataFrame, condition: Any) -> int | None:
    """The stream that has all columns of the condition; None: it needs both."""
    for side, df in ((LEFT, left), (RIGHT, right)):
        try:
            resolved = resolve(df, condition, "where")
        except QueryError:
            continue
        _check(resolved)
        return side
    return None


def _check(condition: Resolved) -> None:
    if not isinstance(condition.type, T.BooleanType):
        raise QueryError(
            f"where: {condition.name} is {condition.type.simpleString()}, not a condition",
            hint='compare it with something: where="price > 100"',
        )
