"""One aggregate of a request, resolved: its input, what orders it, its condition and its result type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.types import is_decimal, is_variable
from headrace.spark.build.holistic_plan import HolisticPlan, plan_holistic
from headrace.spark.language.aggregates import Aggregate, Function
from headrace.spark.language.by_column import OrderedAggregate
from headrace.spark.language.columns import Resolved, first_line, resolve
from headrace.spark.language.holistic import HolisticAggregate
from headrace.spark.language.types import state_type
from headrace.spark.language.windows import Sliding, TimeWindow

ORDERED = frozenset({"first", "last"})  # by event time
_LONG_DIGITS = 18  # decimals of so many digits fit in a word


@dataclass(frozen=True, eq=False)
class Planned:
    """One named aggregate whose input and result type are known."""

    name: str
    function: Function
    input: Resolved | None
    result: T.DataType
    holistic: HolisticPlan | None = None
    by: Resolved | None = None  # the column that orders rows; None: the event time
    condition: Column | None = None  # first and last: rows that take part

    @property
    def where(self) -> str:
        return f"{self.function} of {self.input.name if self.input else 'rows'}"


def planned(df: DataFrame, name: str, aggregate: Aggregate) -> Planned:
    """Resolve one aggregate; Spark's own analysis derives its result type and refuses what it cannot do."""
    if not isinstance(aggregate, Aggregate):
        raise QueryError(
            f"{name} is {aggregate!r}, not an aggregate",
            hint="use hr.count(), hr.sum(…), hr.max(…) and the like",
        )
    where = f"{name}: {aggregate.function}"
    condition = None if aggregate.filter is None else condition_of(df, aggregate.filter, where)
    if isinstance(aggregate, HolisticAggregate):
        plan = plan_holistic(df, name, _filtered(df, aggregate, condition, where))
        return Planned(name, aggregate.function, plan.input, plan.result, plan)
    if aggregate.input is None:
        if aggregate.function != "count":
            raise QueryError(f"{name}: {aggregate.function} needs a column")
        if condition is None:
            return Planned(name, "count", None, T.LongType())
        counted = resolve(df, F.when(condition, F.lit(1)), where)
        return Planned(name, "count", counted, T.LongType())
    base = resolve(df, aggregate.input, where)
    if aggregate.function == "count_distinct":
        counted = base.column if condition is None else F.when(condition, base.column)
        return Planned(name, "count_distinct", resolve(df, counted, where), T.LongType())
    if aggregate.function in ORDERED:
        return Planned(name, aggregate.function, base, base.type, condition=condition)
    if isinstance(aggregate, OrderedAggregate):
        by = order_of(df, aggregate.by, condition, f"{where} by")
        return Planned(name, aggregate.function, base, base.type, by=by)
    if condition is not None:
        base = replace(resolve(df, F.when(condition, base.column), where), name=base.name)
    return Planned(name, aggregate.function, base, _result_type(df, name, aggregate.function, base))


def check_distinct_values(aggregates: Sequence[Planned], window: TimeWindow | None) -> None:
    """Distinct values of slices do not add up to those of a window."""
    if isinstance(window, Sliding) and any(one.function == "count_distinct" for one in aggregates):
        kept = all(one.holistic for one in aggregates if one.function == "count_distinct")
        if not kept:
            raise QueryError(
                "count_distinct over sliding windows is known when they close",
                hint='write emit="final", or take hr.tumbling(…)',
            )


def _result_type(df: DataFrame, name: str, function: Function, base: Resolved) -> T.DataType:
    try:
        return df.agg(getattr(F, function)(base.column)).schema.fields[0].dataType
    except AnalysisException as error:
        raise QueryError(
            f"{name}: Spark has no {function} of {base.name}, a {base.type.simpleString()}",
            hint=first_line(error),
        ) from None


def condition_of(df: DataFrame, written: Any, where: str) -> Column:
    """The condition of an aggregate, as a boolean column."""
    column = F.expr(written) if isinstance(written, str) else written
    resolved = resolve(df, column, f"{where} filter")
    if not isinstance(resolved.type, T.BooleanType):
        raise QueryError(
            f"{where}: filter is {resolved.name}, a {resolved.type.simpleString()}",
            hint='write a condition, as in filter=F.col("price") > 100',
        )
    return resolved.column


def _filtered(
    df: DataFrame, aggregate: HolisticAggregate, condition: Column | None, where: str
) -> HolisticAggregate:
    """A holistic aggregate whose values, or what orders them, are null where the condition fails."""
    if condition is None or aggregate.input is None:
        return aggregate
    if aggregate.by is not None:
        by = resolve(df, aggregate.by, f"{where} by")
        return replace(aggregate, by=F.when(condition, by.column))
    base = resolve(df, aggregate.input, where)
    return replace(aggregate, input=F.when(condition, base.column))


def order_of(df: DataFrame, written: str | Column, condition: Column | None, where: str) -> Resolved:
    """The column that orders rows, in a type whose values are one word; null where the condition fails."""
    base = resolve(df, written, where)
    state, column = state_type(base.type, where), base.column
    if isinstance(base.type, T.DecimalType) and base.type.precision <= _LONG_DIGITS:
        column = (column * F.lit(10**base.type.scale)).cast("bigint")
    elif is_variable(state) or is_decimal(state):
        raise QueryError(
            f"{where} {base.name}, a {base.type.simpleString()}, is not supported",
            hint="order by a number, a date or a timestamp; cast long decimals to double",
        )
    if condition is not None:
        column = F.when(condition, column)
    return replace(resolve(df, column, where), name=base.name)
