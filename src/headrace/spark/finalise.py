"""From aggregates to accumulators, and from their results to what Spark's own aggregate would return.

An aggregate is one or two accumulators in the host and an expression over their results in the JVM. Equal
accumulators are kept once: avg and count of a column share their count, all variances their moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.spark.aggregates import Aggregate, Function
from headrace.spark.columns import Resolved, first_line, resolve
from headrace.spark.holistic import HolisticAggregate
from headrace.spark.holistic_plan import HolisticPlan, plan_holistic
from headrace.spark.internals import decimal_mean
from headrace.spark.types import average_type, spark_type, state_type, sum_type
from headrace.spec import Accumulator, Field, Holistic, Kind, Overflow, result_columns

MOMENTS = frozenset({"var_samp", "var_pop", "stddev_samp", "stddev_pop"})
ORDERED = frozenset({"first", "last"})


@dataclass(frozen=True, eq=False)
class Wanted:
    """One named aggregate whose input and result type are known."""

    name: str
    function: Function
    input: Resolved | None
    result: T.DataType
    holistic: HolisticPlan | None = None

    @property
    def where(self) -> str:
        return f"{self.function} of {self.input.name if self.input else 'rows'}"


def wanted(df: DataFrame, name: str, aggregate: Aggregate) -> Wanted:
    """Resolve one aggregate; Spark's own analysis says its result type and refuses what it cannot do."""
    if not isinstance(aggregate, Aggregate):
        raise QueryError(
            f"{name} is {aggregate!r}, not an aggregate",
            hint="use hr.count(), hr.sum(…), hr.max(…) and the like",
        )
    if isinstance(aggregate, HolisticAggregate):
        plan = plan_holistic(df, name, aggregate)
        return Wanted(name, aggregate.function, plan.input, plan.result, plan)
    if aggregate.input is None:
        if aggregate.function != "count":
            raise QueryError(f"{name}: {aggregate.function} needs a column")
        return Wanted(name, "count", None, T.LongType())
    found = resolve(df, aggregate.input, f"{name}: {aggregate.function}")
    if aggregate.function in ORDERED:
        return Wanted(name, aggregate.function, found, found.type)
    try:
        kind = df.agg(getattr(F, aggregate.function)(found.column)).schema.fields[0].dataType
    except AnalysisException as error:
        raise QueryError(
            f"{name}: Spark has no {aggregate.function} of {found.name}, a {found.type.simpleString()}",
            hint=first_line(error),
        ) from None
    return Wanted(name, aggregate.function, found, kind)


class AccumulatorPlan:
    """Collects the inputs and accumulators of an operator; each distinct one is kept once."""

    def __init__(self, spark: SparkSession, ansi: bool) -> None:
        self._spark = spark
        self._ansi = ansi
        self._bases: list[Resolved] = []
        self._held: dict[tuple[int, str], int] = {}
        self.columns: list[Column] = []
        self.fields: list[Field] = []
        self.accumulators: list[Accumulator] = []
        self.holistics: list[Holistic] = []

    def add(self, aggregates: Sequence[Wanted]) -> list[Column]:
        """The output columns. Plain counts go last, so that they find an input that is there anyway."""
        late = [w for w in aggregates if w.function == "count"]
        early = [w for w in aggregates if w.function != "count"]
        made = {id(w): self._output(w) for w in (*early, *late)}
        return [made[id(w)].alias(w.name) for w in aggregates]

    def _output(self, want: Wanted) -> Column:
        if want.function == "count":
            return self._result(self._accumulate("count", self._countable(want.input), "int64"))
        if want.holistic is not None:
            return self._holistic(want.holistic)
        assert want.input is not None
        kind = want.input.type
        if want.function in MOMENTS:
            held = self._input(want.input, T.DoubleType())
            return self._variance(want.function, self._accumulate("moments", held, "double"))
        if want.function == "sum":
            return self._result(self._sum(want.input, sum_type(kind))).cast(want.result)
        if want.function == "avg":
            return self._average(want, average_type(kind))
        state = state_type(kind, want.where)
        held = self._input(want.input, spark_type(state))
        index = self._accumulate(_kind(want.function), held, state)
        return self._result(index) if kind == spark_type(state) else self._result(index).cast(want.result)

    def time(self, base: Resolved) -> str:
        """The wire name of an instant that no aggregate needs."""
        return self._input(base, T.TimestampType())

    def _holistic(self, plan: HolisticPlan) -> Column:
        held = self._input(plan.input, spark_type(plan.state))
        by = None
        if plan.by is not None:
            by = self._input(plan.by, spark_type(state_type(plan.by.type, f"column {plan.by.name}")))
        holistic = plan.holistic(held, by)
        if holistic not in self.holistics:
            self.holistics.append(holistic)
        return plan.output(F.col(f"h{self.holistics.index(holistic)}"))

    def _average(self, want: Wanted, kind: T.DataType) -> Column:
        assert want.input is not None
        held = self._input(want.input, kind)
        total = self._result(self._sum(want.input, kind))
        count = self._result(self._accumulate("count", held, "int64"))
        if isinstance(want.result, T.DecimalType):
            return F.when(count > 0, decimal_mean(self._spark, total, count, want.result, self._ansi))
        return F.when(count > 0, total / count).cast(want.result)

    def _variance(self, function: Function, index: int) -> Column:
        parts = [F.col(name) for name, _ in result_columns(index, self.accumulators[index])]
        n, m2 = parts[0], parts[2]
        sample = function.endswith("samp")
        variance = F.when(n > 1, m2 / (n - 1)) if sample else F.when(n > 0, m2 / n)
        return F.sqrt(variance) if function.startswith("stddev") else variance

    def _sum(self, base: Resolved, kind: T.DataType) -> int:
        state = state_type(kind, f"sum of {base.name}")
        return self._accumulate("sum", self._input(base, kind), state, self._overflow(state))

    def _overflow(self, state: str) -> Overflow:
        # Spark adds intervals exactly whatever the mode; doubles never overflow.
        if self._ansi or state in ("duration", "double"):
            return "error"
        return "wrap" if state == "int64" else "null"

    def _countable(self, base: Resolved | None) -> str | None:
        """An input whose nulls are those of `base`: any that holds it, else a boolean made for counting."""
        if base is None or not base.nullable:
            return None
        number = self._base(base)
        for (held, state), index in self._held.items():
            # A string that is not a number becomes null when it is cast.
            if held == number and (state == "string" or not isinstance(base.type, T.StringType)):
                return self.fields[index].name
        present = F.when(base.column.isNotNull(), F.lit(True))
        return self._hold((number, "bool"), present, "bool", base.name)

    def _input(self, base: Resolved, kind: T.DataType) -> str:
        """The wire name of `base` cast to `kind`."""
        state = state_type(kind, base.name)
        key = (self._base(base), state)
        if key in self._held:
            return self.fields[self._held[key]].name
        column = base.column if base.type == kind else base.column.cast(kind)
        return self._hold(key, column, state, base.name)

    def _hold(self, key: tuple[int, str], column: Column, state: str, label: str) -> str:
        self._held[key] = len(self.fields)
        self.fields.append(Field(f"v{len(self.fields)}", state, label))
        self.columns.append(column)
        return self.fields[-1].name

    def _base(self, base: Resolved) -> int:
        for number, other in enumerate(self._bases):
            if base is other or base.same_as(other):
                return number
        self._bases.append(base)
        return len(self._bases) - 1

    def _accumulate(self, kind: Kind, held: str | None, state: str, overflow: Overflow = "error") -> int:
        accumulator = Accumulator(kind, held, state, overflow)
        if accumulator not in self.accumulators:
            self.accumulators.append(accumulator)
        return self.accumulators.index(accumulator)

    def _result(self, index: int) -> Column:
        return F.col(result_columns(index, self.accumulators[index])[0][0])


def _kind(function: Function) -> Kind:
    kinds: dict[str, Kind] = {"min": "min", "max": "max", "first": "first", "last": "last"}
    return kinds[function]
