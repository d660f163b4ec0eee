"""A windowed join of two streams: checks the request, and plans both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args

from pyspark.sql import Column, SparkSession

from headrace.errors import QueryError
from headrace.plan.options import Options
from headrace.plan.spec import LEFT, RIGHT, How, OperatorSpec, StoreName, WindowJoin
from headrace.spark.build.joins import sides as parts
from headrace.spark.build.joins.keys import On, keys_of, wire_keys
from headrace.spark.build.joins.rows import BothSides, InputPlan, SidePlan, keeps, outputs
from headrace.spark.build.joins.sides import SIDES, Side
from headrace.spark.build.recipe import Blueprint
from headrace.spark.build.upstream import time_inputs
from headrace.spark.language.shown import shown_keys
from headrace.spark.language.windows import (
    Session,
    Sliding,
    TimeWindow,
    Tumbling,
    event_time,
    window_column,
    window_of,
)

_TIME_HINT = (
    'write .withWatermark("<event time>", …) on it, or name a column of both streams in the '
    'window: tumbling(…, on="<event time>")'
)


@dataclass(frozen=True, eq=False)
class JoinRequest:
    """Rows of two streams with equal keys, in one window."""

    left: Side
    right: Side
    on: On
    window: TimeWindow
    how: How
    name: str | None
    store: StoreName = "auto"

    @property
    def spark(self) -> SparkSession:
        return self.left.df.sparkSession

    def draw(self, options: Options) -> Blueprint:
        """Checks and plans the join, without touching the session."""
        sides = (self.left, self.right)
        _check(self)
        marks = parts.marks_of(sides, "its windows would never close")
        times = [
            parts.time_of_side(side, name, self.window.on, _TIME_HINT)
            for side, name in zip(sides, SIDES, strict=True)
        ]
        keys = keys_of(self.left.df, self.right.df, self.on)
        rest = [
            parts.rest_of(number, side, keys, optional=keeps(self.how, RIGHT if number == LEFT else LEFT))
            for number, side in enumerate(sides)
        ]
        named = [*((key.name, "a key") for key in keys), ("window", "the window")]
        parts.check_names(self.left.df, named, rest)

        plan = InputPlan()
        columns, inputs = zip(*(plan.add(rest[n], times[n]) for n in (LEFT, RIGHT)), strict=True)
        fields, leaves, key_outputs = wire_keys(keys)
        spec = OperatorSpec(
            name=parts.join_name(sides, self.name),
            keys=tuple(fields),
            inputs=tuple(plan.fields),
            work=WindowJoin(self.how, columns[LEFT], columns[RIGHT]),
            window=window_of(self.window, self.left.df),
            emit="final",
            timed=True,
            delays_ms=tuple(mark.delay_ms for mark in marks),
            partitions=options.partitions,
            shown=shown_keys([(key.name, key.type, key.nullable) for key in keys], fields),
        )
        shown = [*key_outputs, window_column(self.spark, times[LEFT].type)]
        shown += outputs(rest[LEFT], "l") + outputs(rest[RIGHT], "r")
        instants = [event_time(self.spark, time) for time in times]
        plans = [
            SidePlan(side.df, [key.sides[n] for key in keys], leaves[n], instants[n], inputs[n])
            for n, side in enumerate(sides)
        ]
        decided_by = time_inputs([(side.df, times[n]) for n, side in enumerate(sides)], marks)
        kept_alone = (keeps(self.how, LEFT), keeps(self.how, RIGHT))
        return Blueprint(spec, BothSides(plans[LEFT], plans[RIGHT], kept_alone), decided_by, shown)


def _check(request: JoinRequest) -> None:
    if not isinstance(request.window, TimeWindow):
        raise QueryError(
            f"{request.window!r} is not a window", hint='write window=hr.tumbling("10 seconds")'
        )
    if not isinstance(request.window, Tumbling | Sliding | Session):
        raise QueryError(
            f"a join takes no window of the kind {type(request.window).__name__}",
            hint="write hr.tumbling(…), hr.sliding(…) or hr.session(…)",
        )
    if isinstance(request.window, Session) and isinstance(request.window.gap, Column):
        raise QueryError(
            "the sessions of a join have one gap", hint='write it as in hr.session("10 seconds")'
        )
    if isinstance(request.window, Session) and request.window.ends is not None:
        raise QueryError("a join of sessions takes no ends=", hint="leave it out")
    parts.check_sides((request.left, request.right))


def spelled(how: str) -> How:
    """The join over windows that one of Spark's spellings means; raises where there is none."""
    return cast(How, parts.spelled(how, get_args(How)))
