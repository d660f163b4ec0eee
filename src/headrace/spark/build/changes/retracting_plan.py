"""Aggregates over a changelog: accumulators that add rows and take them back.

A row counts with its sign. Every aggregate becomes sums: of signs, of signed values. A sum keeps the number
of its values too, because "has a value" cannot be undone. Sums of whole numbers have 38 digits and are
checked when they are emitted. NaN and infinities are counted apart from the finite sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.shown import ShownColumn, ShownKind
from headrace.spark.build.finalise import AccumulatorPlan
from headrace.spark.build.planned import Planned
from headrace.spark.language.changelogs import Changelog
from headrace.spark.language.columns import resolve
from headrace.spark.language.internals import decimal_mean
from headrace.spark.language.types import average_type, state_type, sum_type
from headrace.spark.language.windows import TimeWindow

LINEAR = frozenset({"count", "sum", "avg"})
_WHOLE = T.DecimalType(38, 0)
_INTEGRAL = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def check_retracting(aggregates: Sequence[Planned], window: TimeWindow | None) -> None:
    """Refuses what cannot be taken back, and windows: a changelog has no watermark."""
    if window is not None:
        raise QueryError(
            "a changelog has no event time that a window could close by",
            hint="group by the time as a key, or take the window below the changelog",
        )
    for one in aggregates:
        if one.function not in LINEAR:
            raise QueryError(
                f"{one.where} over a changelog is not supported",
                hint=f"possible are {', '.join(sorted(LINEAR))}, and top(1, by=…) for the largest",
            )


class RetractingPlan(AccumulatorPlan):
    """Collects the accumulators of aggregates over a changelog."""

    def __init__(self, df: DataFrame, changelog: Changelog, ansi: bool) -> None:
        super().__init__(df.sparkSession, ansi)
        self._df, self._is_new = df, changelog.is_new

    def count_rows(self) -> int:
        """The accumulator that counts the rows of a group."""
        return self._signed(F.lit(True), "rows")

    def _output(self, plan: Planned) -> Column:
        if plan.function == "count":
            present = F.lit(True) if plan.input is None else plan.input.column.isNotNull()
            counted = self._signed(present, plan.where)
            self._record(plan, "net_count", (counted,))
            return F.coalesce(self._result(counted), F.lit(0).cast("bigint"))
        assert plan.input is not None
        values = self._signed(plan.input.column.isNotNull(), plan.where)
        number = self._result(values)
        if plan.function == "sum":
            total, parts = self._total(plan, sum_type(plan.input.type))
            self._record(plan, "net_sum", (parts[0], values, *parts[1:]))
            return F.when(number > 0, total.cast(plan.result))
        total, parts = self._total(plan, average_type(plan.input.type))
        self._record(plan, "net_average", (parts[0], values, *parts[1:]))
        if isinstance(plan.result, T.DecimalType):
            return F.when(number > 0, decimal_mean(self._spark, total, number, plan.result, self._ansi))
        mean = total.cast("double") if isinstance(plan.result, T.DoubleType) else total
        return F.when(number > 0, mean / number).cast(plan.result)

    def _record(self, plan: Planned, kind: ShownKind, parts: tuple[int, ...]) -> None:
        """Records how readers of state make the result of its accumulators."""
        columns = tuple(f"a{part}" for part in parts)
        self.shown[plan.name] = ShownColumn(plan.name, kind, state_type(plan.result, plan.where), columns)

    def _signed(self, present: Column, where: str) -> int:
        """The accumulator that adds 1 for a row that comes and takes 1 away for a row that goes."""
        sign = F.when(self._is_new, F.lit(1)).otherwise(F.lit(-1)).cast("bigint")
        base = resolve(self._df, F.when(present, sign), where)
        return self._accumulate("sum", self._input(base, T.LongType()), "int64", "wrap")

    def _total(self, plan: Planned, kind: T.DataType) -> tuple[Column, tuple[int, ...]]:
        """The sum of the values in a group, and the accumulators that it is made of."""
        assert plan.input is not None
        if isinstance(kind, T.DoubleType) and not isinstance(plan.input.type, _INTEGRAL):
            return self._double_total(plan)
        if isinstance(plan.input.type, _INTEGRAL):
            kind = _WHOLE
        total = self._sum_of(plan.input.column.cast(kind), kind, plan.where)
        return self._result(total), (total,)

    def _double_total(self, plan: Planned) -> tuple[Column, tuple[int, ...]]:
        assert plan.input is not None
        value, zero = plan.input.column.cast("double"), F.lit(0.0)
        infinite = F.lit(float("inf"))
        odd = F.isnan(value) | (value == infinite) | (value == -infinite)
        finite = self._sum_of(F.when(odd, zero).otherwise(value), T.DoubleType(), plan.where)
        odds = (F.isnan(value), value == infinite, value == -infinite)
        counts = tuple(self._signed(one, plan.where) for one in odds)
        nans, ups, downs = map(self._result, counts)
        mixed = (nans > 0) | ((ups > 0) & (downs > 0))
        total = (
            F.when(mixed, F.lit(float("nan")))
            .when(ups > 0, infinite)
            .when(downs > 0, -infinite)
            .otherwise(self._result(finite))
        )
        return total, (finite, *counts)

    def _sum_of(self, value: Column, kind: T.DataType, where: str) -> int:
        base = resolve(self._df, F.when(self._is_new, value).otherwise(-value), where)
        return self._accumulate("sum", self._input(base, kind), state_type(kind, where), "error")
