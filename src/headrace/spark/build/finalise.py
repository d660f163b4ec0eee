"""From aggregates to accumulators, and from their results to what Spark's own aggregate would return.

An aggregate is one or two accumulators in the host and an expression over their results in the JVM. Equal
accumulators are kept once: avg and count of a column share their count, all variances their moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.plan.shown import ShownColumn, ShownKind
from headrace.plan.spec import Accumulator, Field, HolisticResult, Kind, Overflow, result_columns
from headrace.plan.types import is_packed
from headrace.spark.build.holistic_plan import HolisticPlan
from headrace.spark.build.planned import Planned
from headrace.spark.language.aggregates import Function
from headrace.spark.language.columns import Resolved
from headrace.spark.language.internals import decimal_mean
from headrace.spark.language.keys import flatten
from headrace.spark.language.packing import from_wire, to_wire
from headrace.spark.language.types import (
    average_type,
    carried_type,
    spark_type,
    state_type,
    sum_type,
)

CARRYING = frozenset({"first", "last", "min_by", "max_by"})  # values are not compared
MOMENTS = frozenset({"var_samp", "var_pop", "stddev_samp", "stddev_pop"})


class AccumulatorPlan:
    """Collects the inputs and accumulators of an operator; each distinct one is kept once."""

    def __init__(self, spark: SparkSession, ansi: bool) -> None:
        self._spark = spark
        self._ansi = ansi
        self._bases: list[Resolved] = []
        self._inputs: dict[tuple[int, str], int] = {}
        self.columns: list[Column] = []
        self.fields: list[Field] = []
        self.accumulators: list[Accumulator] = []
        self.holistics: list[HolisticResult] = []
        self.distincts: dict[int, str] = {}  # inputs whose values count once, by their base
        self.shown: dict[str, ShownColumn] = {}  # of aggregates without holistic ones, by name

    def add(self, aggregates: Sequence[Planned]) -> list[Column]:
        """The output columns. Plain counts go last, so that they reuse an input of another aggregate."""
        late = [w for w in aggregates if w.function == "count"]
        early = [w for w in aggregates if w.function != "count"]
        made = {id(w): self._output(w) for w in (*early, *late)}
        return [made[id(w)].alias(w.name) for w in aggregates]

    def count_rows(self) -> int:
        """The accumulator that counts the rows of a group."""
        return self._accumulate("count", None, "int64")

    def shown_values(self, aggregates: Sequence[Planned]) -> list[ShownColumn]:
        """How results are made of accumulators; none if rows are kept or taken back."""
        return [] if self.holistics or not self.shown else [self.shown[plan.name] for plan in aggregates]

    def _output(self, plan: Planned) -> Column:
        if plan.function == "count":
            counted = self._accumulate("count", self._countable(plan.input), "int64")
            return self._show(plan, "column", counted, self._result(counted))
        if plan.holistic is not None:
            return self._holistic(plan.holistic)
        assert plan.input is not None
        if plan.function == "count_distinct":
            counted = self._accumulate("count", self._distinct(plan.input), "int64")
            return self._show(plan, "column", counted, self._result(counted))
        kind = plan.input.type
        if plan.function in MOMENTS:
            name = self._input(plan.input, T.DoubleType())
            moments = self._accumulate("moments", name, "double")
            shape = cast(ShownKind, plan.function)
            return self._show(plan, shape, moments, self._variance(plan.function, moments))
        if plan.function == "sum":
            summed = self._sum(plan.input, sum_type(kind))
            return self._show(plan, "column", summed, self._result(summed).cast(plan.result))
        if plan.function == "avg":
            return self._average(plan, average_type(kind))
        state = (carried_type if plan.function in CARRYING else state_type)(kind, plan.where)
        name = self._carried(plan.input, state)
        index = self._accumulate(_kind(plan.function), name, state, by=self._order(plan))
        return self._show(plan, "column", index, from_wire(self._result(index), plan.result))

    def _show(self, plan: Planned, kind: ShownKind, index: int, made: Column) -> Column:
        """Records how an aggregate's result is made; returns the result itself."""
        columns = tuple(column.name for column in result_columns(index, self.accumulators[index]))
        result = carried_type(plan.result, plan.where)
        self.shown[plan.name] = ShownColumn(plan.name, kind, result, columns)
        return made

    def window_input(self, base: Resolved) -> str:
        """The wire name of an instant or a flag that the window needs; no aggregate may read it."""
        key, state = (self._base(base), "window"), state_type(base.type, base.name)
        name = self._hold(key, base.column, state, base.name)
        del self._inputs[key]
        return name

    def _holistic(self, plan: HolisticPlan) -> Column:
        name = self._carried(plan.input, plan.state, is_key=plan.compares)
        by = None
        if plan.by is not None:
            by = self._input(plan.by, spark_type(state_type(plan.by.type, f"column {plan.by.name}")))
        holistic = plan.holistic(name, by)
        if holistic not in self.holistics:
            self.holistics.append(holistic)
        return plan.output(F.col(f"h{self.holistics.index(holistic)}"))

    def _average(self, plan: Planned, kind: T.DataType) -> Column:
        assert plan.input is not None
        name = self._input(plan.input, kind)
        summed, counted = self._sum(plan.input, kind), self._accumulate("count", name, "int64")
        total, count = self._result(summed), self._result(counted)
        parts = (f"a{summed}", f"a{counted}")
        result = state_type(plan.result, plan.where)
        self.shown[plan.name] = ShownColumn(plan.name, "average", result, parts)
        if isinstance(plan.result, T.DecimalType):
            return F.when(count > 0, decimal_mean(self._spark, total, count, plan.result, self._ansi))
        return F.when(count > 0, total / count).cast(plan.result)

    def _variance(self, function: Function, index: int) -> Column:
        parts = [F.col(column.name) for column in result_columns(index, self.accumulators[index])]
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
        for (number_of, state), index in self._inputs.items():
            # A string that is not a number becomes null when it is cast.
            if number_of == number and (state == "string" or not isinstance(base.type, T.StringType)):
                return self.fields[index].name
        present = F.when(base.column.isNotNull(), F.lit(True))
        return self._hold((number, "bool"), present, "bool", base.name)

    def _input(self, base: Resolved, kind: T.DataType) -> str:
        """The wire name of `base` cast to `kind`."""
        state = state_type(kind, base.name)
        key = (self._base(base), state)
        if key in self._inputs:
            return self.fields[self._inputs[key]].name
        column = base.column if base.type == kind else base.column.cast(kind)
        return self._hold(key, column, state, base.name)

    def _carried(self, base: Resolved, state: str, *, is_key: bool = False) -> str:
        """The wire name of `base` in a state type that may be packed; keys have equal bytes if equal."""
        if not is_packed(state):
            return self._input(base, spark_type(state))
        key = (self._base(base), f"{state} key" if is_key else state)
        if key in self._inputs:
            return self.fields[self._inputs[key]].name
        return self._hold(key, to_wire(base.column, base.type, base.name, is_key=is_key), state, base.name)

    def _hold(self, key: tuple[int, str], column: Column, state: str, label: str) -> str:
        self._inputs[key] = len(self.fields)
        self.fields.append(Field(f"v{len(self.fields)}", state, label))
        self.columns.append(column)
        return self.fields[-1].name

    def _base(self, base: Resolved) -> int:
        for number, other in enumerate(self._bases):
            if base is other or base.same_as(other):
                return number
        self._bases.append(base)
        return len(self._bases) - 1

    def _distinct(self, base: Resolved) -> str:
        """The wire name of an input whose values count once; no other aggregate may read it."""
        number = self._base(base)
        if number not in self.distincts:
            state, column = self._distinct_values(base)
            self.distincts[number] = self._hold((number, "distinct"), column, state, base.name)
            del self._inputs[number, "distinct"]
        return self.distincts[number]

    def _distinct_values(self, base: Resolved) -> tuple[str, Column]:
        """State type and column of values of which equal ones are equal on the wire."""
        where = f"count_distinct of {base.name}"
        if isinstance(base.type, T.StructType):
            return carried_type(base.type, where, is_key=True), to_wire(
                base.column, base.type, where, is_key=True
            )
        (leaf,) = flatten(base.column, base.type, base.nullable, base.name)
        return leaf.type, leaf.column

    def _order(self, plan: Planned) -> str | None:
        """The wire name of the column that orders rows; None is the event time."""
        if plan.by is None:
            return None
        return self._input(plan.by, spark_type(state_type(plan.by.type, plan.where)))

    def _accumulate(
        self,
        kind: Kind,
        name: str | None,
        state: str,
        overflow: Overflow = "error",
        by: str | None = None,
    ) -> int:
        accumulator = Accumulator(kind, name, state, overflow, by)
        if accumulator not in self.accumulators:
            self.accumulators.append(accumulator)
        return self.accumulators.index(accumulator)

    def _result(self, index: int) -> Column:
        return F.col(result_columns(index, self.accumulators[index])[0].name)


def _kind(function: Function) -> Kind:
    kinds: dict[str, Kind] = {"min": "min", "max": "max", "first": "first", "last": "last"}
    kinds |= {"min_by": "first", "max_by": "last"}
    return kinds[function]
