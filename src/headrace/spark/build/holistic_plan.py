"""Which values a holistic aggregate keeps, and what its result is: Spark's own analysis decides."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.spec import Emit, HolisticResult
from headrace.plan.types import is_packed
from headrace.spark.language.columns import Resolved, first_line, resolve
from headrace.spark.language.holistic import HolisticAggregate
from headrace.spark.language.packing import from_wire
from headrace.spark.language.types import carried_type, spark_type, state_type
from headrace.spark.language.windows import TimeWindow

COMPARING = ("set", "mode")  # equal values count as one


@dataclass(frozen=True, eq=False)
class HolisticPlan:
    """A holistic aggregate whose columns and types are known."""

    aggregate: HolisticAggregate
    input: Resolved
    by: Resolved | None
    value: T.DataType  # of one value, as the user's column has it
    state: str  # of one value, as it is kept

    @property
    def listed(self) -> bool:
        return self.aggregate.many or self.aggregate.kind in ("top", "list", "set")

    @property
    def compares(self) -> bool:
        """Whether equal values must be equal on the wire."""
        return self.aggregate.kind in COMPARING

    @property
    def result(self) -> T.DataType:
        if self.aggregate.counted:
            return T.LongType()
        return T.ArrayType(self.value) if self.listed else self.value

    def holistic(self, input_name: str, by: str | None) -> HolisticResult:
        of = self.aggregate
        return HolisticResult(of.kind, input_name, self.state, of.numbers, of.many, by, of.ties)

    def output(self, column: Column) -> Column:
        """The result in the user's type; a varchar is kept as a string, for one."""
        if self.aggregate.counted:
            return F.size(column).cast("bigint")
        if is_packed(self.state):
            return (
                F.transform(column, lambda value: from_wire(value, self.value))
                if self.listed
                else from_wire(column, self.value)
            )
        return column if self.value == spark_type(self.state) else column.cast(self.result)


def plan_holistic(df: DataFrame, name: str, aggregate: HolisticAggregate) -> HolisticPlan:
    """Resolve one holistic aggregate; raises where Spark or the state cannot do it."""
    where = f"{name}: {aggregate.function}"
    if aggregate.input is None:
        raise QueryError(f"{where} needs a column")
    values = resolve(df, aggregate.input, where)
    by = None if aggregate.by is None else resolve(df, aggregate.by, f"{where} by")
    kind = _value_type(df, aggregate, values, where)
    if aggregate.kind == "percentile" and not isinstance(kind, T.DoubleType):
        raise QueryError(
            f"{where} of {values.name}, a {values.type.simpleString()}, is not a double",
            hint="turn intervals into numbers first, or use hr.approx_percentile",
        )
    return HolisticPlan(
        aggregate, values, by, kind, _state_of(aggregate, kind, f"{where} of {values.name}")
    )


def _state_of(aggregate: HolisticAggregate, kind: T.DataType, where: str) -> str:
    """The state type of a value; only values that are not put into order may be packed."""
    if aggregate.kind in ("list", *COMPARING) or (aggregate.kind == "top" and aggregate.by is not None):
        return carried_type(kind, where, is_key=aggregate.kind in COMPARING)
    return state_type(kind, where)


def _value_type(df: DataFrame, aggregate: HolisticAggregate, values: Resolved, where: str) -> T.DataType:
    column, shares = values.column, list(aggregate.numbers)
    match aggregate.kind:
        case "percentile":
            call = F.percentile(column, shares[0])
        case "approx_percentile":
            call = F.percentile_approx(column, shares[0], int(shares[-1]))
        case "mode":
            call = F.mode(column)
        case _:
            return values.type
    try:
        return df.agg(call).schema.fields[0].dataType
    except AnalysisException as error:
        raise QueryError(
            f"{where}: Spark has none of {values.name}, a {values.type.simpleString()}",
            hint=first_line(error),
        ) from None


def check_kept(what: str, emit: Emit | None, window: TimeWindow | None) -> None:
    """Refuses to keep rows for ever, and to emit their results before all rows have arrived."""
    if window is None:
        raise QueryError(
            f"{what} keeps its rows until their window closes, and there is no window",
            hint="add hr.tumbling(…), hr.sliding(…) or hr.session(…) to groupBy",
        )
    if emit == "changes":
        raise QueryError(
            f'{what} needs all rows of a window, so emit="changes" is not possible',
            hint='write emit="final", or leave emit out',
        )
