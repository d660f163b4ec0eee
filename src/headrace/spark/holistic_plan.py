"""Which values a holistic aggregate keeps, and what its result is: Spark's own analysis decides."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.spark.columns import Resolved, first_line, resolve
from headrace.spark.holistic import HolisticAggregate
from headrace.spark.types import spark_type, state_type
from headrace.spark.windows import TimeWindow
from headrace.spec import Emit, Holistic


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
    def result(self) -> T.DataType:
        return T.ArrayType(self.value) if self.listed else self.value

    def holistic(self, held: str, by: str | None) -> Holistic:
        said = self.aggregate
        return Holistic(said.kind, held, self.state, said.numbers, said.many, by, said.ties)

    def output(self, column: Column) -> Column:
        """The result in the user's type; a varchar is kept as a string, for one."""
        return column if self.value == spark_type(self.state) else column.cast(self.result)


def plan_holistic(df: DataFrame, name: str, aggregate: HolisticAggregate) -> HolisticPlan:
    """Resolve one holistic aggregate; raises where Spark or the state cannot do it."""
    where = f"{name}: {aggregate.function}"
    if aggregate.input is None:
        raise QueryError(f"{where} needs a column")
    found = resolve(df, aggregate.input, where)
    by = None if aggregate.by is None else resolve(df, aggregate.by, f"{where} by")
    kind = _value_type(df, aggregate, found, where)
    if aggregate.kind == "percentile" and not isinstance(kind, T.DoubleType):
        raise QueryError(
            f"{where} of {found.name}, a {found.type.simpleString()}, is not a double",
            hint="turn intervals into numbers first, or use hr.approx_percentile",
        )
    return HolisticPlan(aggregate, found, by, kind, state_type(kind, f"{where} of {found.name}"))


def _value_type(df: DataFrame, aggregate: HolisticAggregate, found: Resolved, where: str) -> T.DataType:
    column, shares = found.column, list(aggregate.numbers)
    match aggregate.kind:
        case "percentile":
            call = F.percentile(column, shares[0])
        case "approx_percentile":
            call = F.percentile_approx(column, shares[0], int(shares[-1]))
        case "mode":
            call = F.mode(column)
        case _:
            return found.type
    try:
        return df.agg(call).schema.fields[0].dataType
    except AnalysisException as error:
        raise QueryError(
            f"{where}: Spark has none of {found.name}, a {found.type.simpleString()}",
            hint=first_line(error),
        ) from None


def check_kept(what: str, emit: Emit | None, window: TimeWindow | None) -> None:
    """Refuse to keep rows for ever, or to give out what they come to before they are all there."""
    if window is None:
        raise QueryError(
            f"{what} keeps its rows until their window closes, and there is no window",
            hint="add hr.tumbling(…), hr.sliding(…) or hr.session(…) to groupBy",
        )
    if emit == "changes":
        raise QueryError(
            f'{what} needs all rows of a window, so emit="changes" is not possible',
            hint='say emit="final", or leave emit out',
        )


def result_type(holistic: Holistic) -> T.DataType:
    """The Spark type in which a holistic result leaves the host."""
    of_one = T.DoubleType() if holistic.kind == "percentile" else spark_type(holistic.type)
    listed = holistic.many or holistic.kind in ("top", "list", "set")
    return T.ArrayType(of_one) if listed else of_one
