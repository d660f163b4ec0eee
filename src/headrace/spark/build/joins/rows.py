"""The rows of a join on the wire: both sides in one schema, marked by SIDE.

left  ─▶ hash, time, side, keys, inputs ─┐
                                         union ─▶ repartitionById ─▶ task
right ─▶ hash, time, side, keys, inputs ─┘

Each side is first projected under new names, so that a stream may be joined with itself. A row with a null
key matches no other row. An inner side drops it before the shuffle; an outer side marks it as ALONE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.plan.spec import ALONE, HASH, LEFT, RIGHT, SIDE, TIME, Field, How, OperatorSpec
from headrace.spark.build.project import hash_of, placed
from headrace.spark.language.columns import Resolved
from headrace.spark.language.keys import Leaf, flatten, rebuild
from headrace.spark.language.types import spark_type

_ALONE = "__alone"


@dataclass(frozen=True, eq=False)
class SidePlan:
    """One side: its rows, and how to compute keys, event time and inputs from them."""

    df: DataFrame
    keys: Sequence[Column]  # whole keys, to see which are null
    leaves: Sequence[Column]  # in the order of `spec.keys`
    time: Column | None  # None: rows carry no event time
    inputs: dict[str, Column]  # by the names of `spec.inputs`; others are null on this side
    conditions: Sequence[Column] = ()  # a row that fails one of them matches no other row


def keeps(how: How, side: int) -> bool:
    """Whether rows of the side without a partner come out."""
    return how == "full" or how == ("left" if side == LEFT else "right")


@dataclass(frozen=True, eq=False)
class Carried:
    """A column of a side that comes out of the join as it went in."""

    column: Resolved
    leaves: list[Leaf]
    nullable: bool


def carried(column: Resolved, optional: bool) -> Carried:
    """`optional`: the side may be missing, and then a struct is null, whatever it was."""
    nullable = column.nullable or optional
    return Carried(
        column, flatten(column.column, column.type, nullable, column.name, is_key=False), nullable
    )


class InputPlan:
    """Gives the columns of both sides their inputs: columns of equal type share one."""

    def __init__(self) -> None:
        self.fields: list[Field] = []

    def add(
        self, columns: Sequence[Carried], time: Resolved | None
    ) -> tuple[tuple[Field, ...], dict[str, Column]]:
        """The fields of one side, and the expressions of the inputs that it fills."""
        fields: list[Field] = []
        inputs: dict[str, Column] = {}
        for one in columns:
            for leaf in one.leaves:
                is_time = time is not None and leaf.type == "timestamp" and one.column.same_as(time)
                name = TIME if is_time else self._free(leaf, inputs)
                fields.append(Field(name, leaf.type, leaf.label))
                if not is_time:
                    inputs[name] = leaf.column
        return tuple(fields), inputs

    def more(self, leaf: Leaf, used: dict[str, Column]) -> str:
        """An input beside the columns of a side that fills `used`; returns its name."""
        name = self._free(leaf, used)
        used[name] = leaf.column
        return name

    def _free(self, leaf: Leaf, used: dict[str, Column]) -> str:
        for field in self.fields:
            if field.type == leaf.type and field.name not in used:
                return field.name
        self.fields.append(Field(f"v{len(self.fields)}", leaf.type, leaf.label))
        return self.fields[-1].name


def outputs(columns: Sequence[Carried], prefix: str) -> list[Column]:
    """The columns of a side again, from what the task returns under `prefix` and a number."""
    columns_out = []
    start = 0
    for one in columns:
        numbers = range(start, start + len(one.leaves))
        leaves = iter([F.col(f"{prefix}{number}") for number in numbers])
        columns_out.append(rebuild(one.column.type, one.nullable, leaves).alias(one.column.name))
        start = numbers.stop
    return columns_out


@dataclass(frozen=True, eq=False)
class BothSides:
    """Rows of two streams."""

    left: SidePlan
    right: SidePlan
    kept_alone: tuple[bool, bool]  # whether rows of each side without a partner come out

    def __call__(self, spec: OperatorSpec) -> DataFrame:
        """Rows of `input_schema` of both streams, each in its partition."""
        sides = [
            side_rows(spec, plan, side, kept_alone=self.kept_alone[side])
            for side, plan in ((LEFT, self.left), (RIGHT, self.right))
        ]
        return placed(sides[LEFT].union(sides[RIGHT]), spec)


def side_rows(spec: OperatorSpec, plan: SidePlan, side: int, *, kept_alone: bool) -> DataFrame:
    """Rows of one side on the wire; those with a null key only if they are kept alone."""
    alone = F.lit(False)
    for key in plan.keys:
        alone = alone | key.isNull()
    for condition in plan.conditions:
        alone = alone | ~F.coalesce(condition, F.lit(False))
    columns = [alone.alias(_ALONE)]
    if plan.time is not None:
        columns.append(plan.time.alias(TIME))
    columns += [leaf.alias(field.name) for leaf, field in zip(plan.leaves, spec.keys, strict=True)]
    columns += [_input(plan, field).alias(field.name) for field in spec.inputs]
    rows = plan.df.select(*columns)
    if plan.time is not None:
        rows = rows.where(F.col(TIME).isNotNull())  # as Spark's window does
    if not kept_alone:
        rows = rows.where(~F.col(_ALONE))
    names = [field.name for field in (*spec.keys, *spec.inputs)]
    number = F.when(F.col(_ALONE), F.lit(side + ALONE)).otherwise(F.lit(side)).cast("tinyint")
    times = [TIME] * (plan.time is not None)
    return rows.select(_hash(spec).alias(HASH), *times, number.alias(SIDE), *names)


def _hash(spec: OperatorSpec) -> Column:
    """The key's hash. But in sessions, rows that meet no other are spread over all partitions."""
    if not spec.timed or (spec.window is not None and spec.window.session):
        return hash_of(spec)
    spread = F.xxhash64(TIME, *(F.col(field.name) for field in spec.inputs))
    return F.when(F.col(_ALONE), spread).otherwise(hash_of(spec))


def _input(plan: SidePlan, field: Field) -> Column:
    return plan.inputs.get(field.name, F.lit(None).cast(spark_type(field.type)))
