"""A join of two streams without a window: checks the request, and plans both sides.

Rows match if their keys are equal and their event times are near enough (`between`), or less far apart than
they are retained. With `until` they match if the left row's time lies between the right row's time
and a column of it.
Without any of these, every two rows of equal keys match, and rows are stored for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.spec import LEFT, RIGHT, TIME, Field, OperatorSpec, StoreName
from headrace.plan.work.joins.condition import Term
from headrace.plan.work.joins.stream_join import FAR_US, Matching, Meets, StreamJoin
from headrace.spark.build.joins import sides as parts
from headrace.spark.build.joins.conditions import NO_CONDITIONS, Conditions
from headrace.spark.build.joins.keys import Key, On, keys_of, shared_names, wire_keys
from headrace.spark.build.joins.paired import PairedConditions
from headrace.spark.build.joins.rows import BothSides, Carried, InputPlan, SidePlan, outputs
from headrace.spark.build.joins.sides import SIDES, Side
from headrace.spark.build.parts import supported
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.columns import Resolved, resolve
from headrace.spark.language.keys import flatten
from headrace.spark.language.plans import Watermark, watermarks
from headrace.spark.language.shown import shown_keys
from headrace.spark.language.windows import event_time, micros

Duration = str | timedelta
Bounds = tuple[int, int]

BUCKETS = 16  # a row is stored at most a sixteenth of its time too long
BUCKET_MIN_US = 1_000_000
UNTIL_BUCKET_US = 10_000_000  # how long rows live is not known beforehand
_TIME_HINT = 'name both: times=("<event time>", "<event time>")'


@dataclass(frozen=True, eq=False)
class StreamJoinRequest:
    """Rows of two streams with equal keys and near times."""

    left: Side
    right: Side
    on: On
    how: Matching
    between: tuple[Duration, Duration] | None
    retain: Duration | None
    name: str | None
    store: StoreName = "auto"
    meets: Meets = "both"
    until: str | Column | None = None
    where: Conditions = NO_CONDITIONS

    @property
    def spark(self) -> SparkSession:
        return self.left.df.sparkSession

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the join, without touching the session."""
        sides = (self.left, self.right)
        parts.check_sides(sides)
        bounds = bounds_of(self.left.df, self.between, self.retain, self.until)
        check_kind(self.how, bounds, self.meets, has_end=self.until is not None)
        marks, times = times_of(sides, bounds)
        keys = keys_of(self.left.df, self.right.df, self.on)
        rest = self._columns(sides, keys)
        parts.check_names(self.left.df, [(key.name, "a key") for key in keys], rest)

        plan = InputPlan()
        columns, inputs = zip(*(plan.add(rest[n], times[n]) for n in (LEFT, RIGHT)), strict=True)
        carried = [_Inputs(plan, columns[n], rest[n], inputs[n]) for n in (LEFT, RIGHT)]
        until, ending = self._until(carried[RIGHT])
        where = self._where(carried, shared_names(keys))
        fields, leaves, key_outputs = wire_keys(keys)
        work = replace(self._work(columns, bounds, until), where=where)
        spec = OperatorSpec(
            name=parts.join_name(sides, self.name),
            keys=tuple(fields),
            inputs=tuple(plan.fields),
            work=work,
            window=None,
            emit="changes",
            timed=bounds is not None,
            delays_ms=tuple(mark.delay_ms for mark in marks),
            partitions=options.partitions,
            shown=shown_keys([(key.name, key.type, key.nullable) for key in keys], fields),
        )
        instants = [None if time is None else event_time(self.spark, time) for time in times]
        frames = (self.left.df, self.right.df if ending is None else self.right.df.where(ending))
        plans = [
            SidePlan(
                frames[n],
                [key.sides[n] for key in keys],
                leaves[n],
                instants[n],
                inputs[n],
                self.where.of_side(n),
            )
            for n in (LEFT, RIGHT)
        ]
        decided_by = time_inputs([(side.df, times[n]) for n, side in enumerate(sides)], marks)
        kept_alone = (work.keeps_alone(LEFT), work.keeps_alone(RIGHT))
        shown = [*key_outputs, *outputs(rest[LEFT], "l"), *outputs(rest[RIGHT], "r")]
        return Blueprint(spec, BothSides(plans[LEFT], plans[RIGHT], kept_alone), decided_by, shown)

    def _columns(self, sides: parts.Sides, keys: Sequence[Key]) -> list[list[Carried]]:
        """The columns of each side that come out; a semi or anti join returns left rows only."""
        optional = {LEFT: self.how in ("right", "full"), RIGHT: self.how in ("left", "full")}
        rest = [parts.rest_of(n, side, keys, optional=optional[n]) for n, side in enumerate(sides)]
        return rest if self.how not in ("semi", "anti") else [rest[LEFT], []]

    def _until(self, inputs: _Inputs) -> tuple[str | None, Column | None]:
        """The input with the last time at which a right row matches, and which rows have one."""
        if self.until is None:
            return None, None
        end = resolve(self.right.df, self.until, "until, right stream")
        if not isinstance(end.type, T.TimestampType):
            raise QueryError(
                f"until={end.name} is {end.type.simpleString()}",
                hint="name a timestamp of the right stream",
            )
        return inputs.having(end), end.column.isNotNull()

    def _where(self, inputs: Sequence[_Inputs], keys: Sequence[str]) -> Term | None:
        """The condition that the host evaluates on pairs."""
        if not self.where.of_pairs:
            return None

        def operand(side: int, value: Resolved) -> str:
            return inputs[side].having(value)

        return PairedConditions(self.left.df, self.right.df, keys, operand).term(self.where.of_pairs)

    def _work(self, columns: Any, bounds: Bounds | None, until: str | None) -> StreamJoin:
        lower, upper = (None, None) if bounds is None or until is not None else bounds
        work = StreamJoin(
            self.how, columns[LEFT], columns[RIGHT], lower, upper, meets=self.meets, until=until
        )
        return replace(work, bucket_us=bucket_us(work))


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The inputs of one side: those of its columns, and more that only the host reads."""

    plan: InputPlan
    fields: Sequence[Field]
    columns: Sequence[Carried]
    used: dict[str, Column]

    def having(self, value: Resolved) -> str:
        """The input with the values of an expression: that of a column that is equal, or one more."""
        at = 0
        for one in self.columns:
            if one.column.same_as(value) and self.fields[at].name != TIME:
                return self.fields[at].name
            at += len(one.leaves)
        (leaf,) = flatten(value.column, value.type, value.nullable, value.name, is_key=False)
        return self.plan.more(leaf, self.used)


def bounds_of(
    df: DataFrame,
    between: tuple[Duration, Duration] | None,
    retain: Duration | None,
    until: str | Column | None = None,
) -> Bounds | None:
    """The least and the most that a left row may be later than its partner; None without a limit."""
    if sum(limit is not None for limit in (between, retain, until)) > 1:
        raise QueryError(
            "a join takes one of between=, retain= and until=",
            hint="leave the others out: each of them fixes how long rows are stored",
        )
    if until is not None:
        return 0, FAR_US
    if retain is not None:
        far = micros(df, retain, "retain")
        if far <= 0:
            raise QueryError(f"retain={retain!r} is not a duration", hint='write retain="60 days"')
        return -far, far
    if between is None:
        return None
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise QueryError(
            f"between={between!r} is not a pair of durations",
            hint='write between=("-5 minutes", "10 minutes"): left time less right time, least and most',
        )
    lower, upper = (micros(df, bound, "between") for bound in between)
    if lower > upper:
        raise QueryError(f"between={between!r} is empty", hint="write the lesser bound first")
    return lower, upper


def check_kind(how: Matching, bounds: Bounds | None, meets: Meets, *, has_end: bool = False) -> None:
    """Refuses joins whose rows without a partner could never come out."""
    if has_end and how in ("right", "full"):
        raise QueryError(
            f'how="{how}" with until=: left rows are not stored for as long as a right row may wait',
            hint='write how="inner", "left", "semi" or "anti", or bound the time: between=(…, …)',
        )
    if meets != "both" and how in ("right", "full"):
        raise QueryError(
            f'how="{how}": rows of the history come out only beside rows of the stream',
            hint='write how="inner", "left", "semi" or "anti", or use join(…, between=…)',
        )
    if bounds is None and how not in ("inner", "semi"):
        raise QueryError(
            f'how="{how}" needs between= or retain=: a row could find a partner at any later time',
            hint='write retain="60 days", or between=("-1 hour", "1 hour")',
        )


def times_of(
    sides: parts.Sides, bounds: Bounds | None
) -> tuple[tuple[Watermark, ...], list[Resolved | None]]:
    """The watermarks of both sides, and their event times if the join goes by them."""
    if bounds is None:
        by_node = {mark.node: mark for side in sides for mark in watermarks(side.df)}
        return supported(sides[LEFT].df, tuple(by_node.values())), [None, None]
    marks = parts.marks_of(sides, "its rows would be stored for good")
    named = zip(sides, SIDES, strict=True)
    return marks, [parts.time_of_side(side, name, None, _TIME_HINT) for side, name in named]


def bucket_us(work: StreamJoin) -> int:
    """The width of a bucket, by the interval alone: the watermark's delay may change."""
    if work.until is not None:
        return UNTIL_BUCKET_US
    known = [keeps for side in (LEFT, RIGHT) if (keeps := work.keeps_us(side)) is not None]
    return max(max(known) // BUCKETS, BUCKET_MIN_US) if known else 0


def spelled(how: Any) -> Matching:
    """The join that one of Spark's spellings means; raises where there is none."""
    return cast(Matching, parts.spelled(how, get_args(Matching)))
