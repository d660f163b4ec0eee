"""A join of a stream with a static table: checks the request, and plans the rows of both.

The table's rows come as a stream of generations. They are state: a left row meets the rows of the newest
generation when it arrives. A marker brings the number of a generation to every partition, so that rows of
older ones are dropped there even if the newer one has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.partitions.groups import GROUP_BITS
from headrace.plan.spec import ALONE, HASH, LEFT, RIGHT, SIDE, Field, OperatorSpec, StoreName
from headrace.plan.work.joins.stream_join import Matching, StreamJoin
from headrace.spark.build.joins import sides as parts
from headrace.spark.build.joins.keys import Key, On, keys_of, wire_keys
from headrace.spark.build.joins.rows import Carried, InputPlan, SidePlan, outputs, side_rows
from headrace.spark.build.joins.sides import Side
from headrace.spark.build.parts import supported
from headrace.spark.build.project import placed
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.keys import Leaf
from headrace.spark.language.plans import watermarks
from headrace.spark.language.shown import shown_keys
from headrace.spark.language.types import spark_type
from headrace.spark.lookups.generations import GENERATION, MARKER

HOWS: tuple[Matching, ...] = ("inner", "left", "semi", "anti")


@dataclass(frozen=True, eq=False)
class TableRequest:
    """Rows of a stream with rows of a table that have equal keys; `table` is its stream of generations."""

    left: Side
    table: DataFrame
    on: On
    how: Matching
    name: str | None
    store: StoreName = "auto"

    @property
    def spark(self) -> SparkSession:
        return self.left.df.sparkSession

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the join, without touching the session."""
        right = Side(self.table, None)
        parts.check_sides((self.left, right))
        marks = supported(self.left.df, watermarks(self.left.df))
        keys = keys_of(self.left.df, self.table, self.on)
        rest = self._columns(right, keys)
        parts.check_names(self.left.df, [(key.name, "a key") for key in keys], rest)
        plan = InputPlan()
        columns, inputs = zip(*(plan.add(rest[n], None) for n in (LEFT, RIGHT)), strict=True)
        number = Leaf(F.col(GENERATION) * 2, "int64", "generation")
        generation = plan.more(number, inputs[RIGHT])
        fields, leaves, key_outputs = wire_keys(keys)
        work = StreamJoin(
            self.how, columns[LEFT], columns[RIGHT], bucket_us=2, meets="arrival", generation=generation
        )
        spec = OperatorSpec(
            name=parts.join_name((self.left, right), self.name),
            keys=tuple(fields),
            inputs=tuple(plan.fields),
            work=work,
            window=None,
            emit="changes",
            timed=False,
            delays_ms=tuple(mark.delay_ms for mark in marks),
            partitions=options.partitions,
            shown=shown_keys([(key.name, key.type, key.nullable) for key in keys], fields),
        )
        frames = (self.left.df, self.table.where(~F.col(MARKER)))
        plans = [
            SidePlan(frames[n], [key.sides[n] for key in keys], leaves[n], None, inputs[n])
            for n in (LEFT, RIGHT)
        ]
        times = time_inputs([(self.left.df, None), (self.table, None)], marks)
        shown = [*key_outputs, *outputs(rest[LEFT], "l"), *outputs(rest[RIGHT], "r")]
        return Blueprint(spec, WithTable(plans[LEFT], plans[RIGHT], self.table), times, shown)

    def _columns(self, right: Side, keys: Sequence[Key]) -> list[list[Carried]]:
        left = parts.rest_of(LEFT, self.left, keys, optional=False)
        if self.how in ("semi", "anti"):
            return [left, []]
        table = Side(right.df.drop(GENERATION, MARKER), None)
        return [left, parts.rest_of(RIGHT, table, keys, optional=self.how == "left")]


@dataclass(frozen=True, eq=False)
class WithTable:
    """Rows of a stream, of the table's new generations, and their markers."""

    left: SidePlan
    right: SidePlan
    table: DataFrame

    def __call__(self, spec: OperatorSpec) -> DataFrame:
        """Rows of `input_schema`, each in its partition."""
        assert isinstance(spec.work, StreamJoin)
        rows = side_rows(spec, self.left, LEFT, kept_alone=spec.work.keeps_alone(LEFT))
        rows = rows.union(side_rows(spec, self.right, RIGHT, kept_alone=False))
        return placed(rows.union(self._markers(spec, spec.work.generation)), spec)

    def _markers(self, spec: OperatorSpec, generation: str | None) -> DataFrame:
        """One row per new generation and partition, which matches no other row."""
        numbers = [F.lit(first_hash(at, spec.partitions)).cast("bigint") for at in range(spec.partitions)]
        columns = [_null(field) for field in spec.keys]
        columns += [
            (F.col(GENERATION) * 2).alias(field.name) if field.name == generation else _null(field)
            for field in spec.inputs
        ]
        side = F.lit(RIGHT + ALONE).cast("tinyint").alias(SIDE)
        marks = self.table.where(F.col(MARKER))
        return marks.select(F.explode(F.array(*numbers)).alias(HASH), side, *columns)


def first_hash(partition: int, partitions: int) -> int:
    """A hash that the partition owns, as a signed number."""
    group = -(-(partition << GROUP_BITS) // partitions)
    unsigned = group << (64 - GROUP_BITS)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


def _null(field: Field) -> Column:
    return F.lit(None).cast(spark_type(field.type)).alias(field.name)


def spelled(how: Any) -> Matching:
    """The join with a table that one of Spark's spellings means; raises where there is none."""
    matching = cast(Matching, parts.spelled(how, get_args(Matching)))
    if matching in HOWS:
        return matching
    raise QueryError(
        f'how="{matching}": rows of the table come out only beside rows of the stream',
        hint=f"write one of {', '.join(HOWS)}",
    )
