"""Builds a windowed join of two streams: checks the request, plans both sides, puts it into the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.options import Options
from headrace.spark.columns import Resolved, case_insensitive, first_line, resolve
from headrace.spark.explain import remember
from headrace.spark.join_keys import Key, On, keys_of, wire_keys
from headrace.spark.join_rows import Carried, InputPlan, SidePlan, both_sides, carried, keeps, outputs
from headrace.spark.operator import chosen, make_task, session_options, supported
from headrace.spark.plans import TASK_PREFIX, Watermark, operators_below, watermarks
from headrace.spark.project import Blueprint, result_struct
from headrace.spark.session import prepare
from headrace.spark.windows import (
    Session,
    TimeWindow,
    event_time,
    is_wall_time,
    window_column,
    window_of,
)
from headrace.spec import LEFT, RIGHT, How, Join, OperatorSpec
from headrace.store.choose import Said

SIDES = ("left", "right")


@dataclass(frozen=True, eq=False)
class Side:
    """One stream of a join, and its watermark's column if that is known."""

    df: DataFrame
    time: str | None


@dataclass(frozen=True, eq=False)
class JoinRequest:
    """What the user asked for."""

    left: Side
    right: Side
    on: On
    window: TimeWindow
    how: How
    name: str | None
    store: Said = "auto"


@dataclass(frozen=True, eq=False)
class Drawn:
    """A join that is ready to be put into the plan."""

    blueprint: Blueprint
    left: SidePlan
    right: SidePlan


def build_join(request: JoinRequest) -> DataFrame:
    """The request as a streaming DataFrame; raises before anything runs."""
    spark = request.left.df.sparkSession
    options = session_options(spark)
    drawn = draw_join(request, options)
    blueprint, choice = chosen(drawn.blueprint, options, request.store)
    task, spec = make_task(spark, blueprint, options), blueprint.spec
    prepare(spark, spec)
    task.__name__ = TASK_PREFIX + spec.name
    try:
        rows = both_sides(spec, drawn.left, drawn.right)
        built = rows.mapInArrow(task, result_struct(spec)).select(*blueprint.output)
    except AnalysisException as error:
        raise QueryError(f"operator {spec.name}: {first_line(error)}") from None
    remember(built, spec, choice)
    return built


def draw_join(request: JoinRequest, options: Options) -> Drawn:
    """Plan the join, without touching the session."""
    sides = (request.left, request.right)
    _check(request)
    marks = _marks(sides)
    times = [_time(request, side, name) for side, name in zip(sides, SIDES, strict=True)]
    keys = keys_of(request.left.df, request.right.df, request.on)
    rest = [_rest(request.how, number, side, keys) for number, side in enumerate(sides)]
    _check_names(request, [key.name for key in keys], rest)

    plan = InputPlan()
    columns, inputs = zip(*(plan.add(rest[n], times[n]) for n in (LEFT, RIGHT)), strict=True)
    fields, leaves, key_outputs = wire_keys(keys)
    spark = request.left.df.sparkSession
    spec = OperatorSpec(
        name=_name(request),
        keys=tuple(fields),
        inputs=tuple(plan.fields),
        accumulators=(),
        window=window_of(request.window, request.left.df),
        emit="final",
        timed=True,
        delays_ms=tuple(mark.delay_ms for mark in marks),
        partitions=options.partitions,
        join=Join(request.how, columns[LEFT], columns[RIGHT]),
    )
    shown = [*key_outputs, window_column(spark, times[LEFT].type)]
    shown += outputs(rest[LEFT], "l") + outputs(rest[RIGHT], "r")
    nodes = tuple(mark.node for mark in marks)
    plans = [
        SidePlan(side.df, [key.sides[n] for key in keys], leaves[n], event_time(spark, times[n]), inputs[n])
        for n, side in enumerate(sides)
    ]
    blueprint = Blueprint(spec, leaves[LEFT], [], plans[LEFT].time, shown, nodes)
    return Drawn(blueprint, plans[LEFT], plans[RIGHT])


def _check(request: JoinRequest) -> None:
    if not isinstance(request.window, TimeWindow):
        raise QueryError(f"{request.window!r} is not a window", hint='say window=hr.tumbling("10 seconds")')
    if isinstance(request.window, Session) and request.window.ends is not None:
        raise QueryError("a join of sessions takes no ends=", hint="leave it out")
    if request.how not in get_args(How):
        raise QueryError(f"how={request.how!r}", hint=f"say one of {', '.join(get_args(How))}")
    if request.left.df.sparkSession is not request.right.df.sparkSession:
        raise QueryError("the two streams of a join belong to different sessions", hint="build both in one")
    twice = set(operators_below(request.left.df)) & set(operators_below(request.right.df))
    if twice:
        raise QueryError(
            f"operator {min(twice)} is on both sides of the join",
            hint="two operators need two names: .name(…); one operator cannot be read twice",
        )


def _marks(sides: Sequence[Side]) -> tuple[Watermark, ...]:
    found: dict[str, Watermark] = {}
    for side, name in zip(sides, SIDES, strict=True):
        marks = watermarks(side.df)
        if not marks:
            raise QueryError(
                f"the {name} stream of the join has no watermark, so its windows would never close",
                hint=f'say .withWatermark("<event time>", "10 seconds") on the {name} stream',
            )
        found |= {mark.node: mark for mark in marks}
    return supported(sides[LEFT].df, tuple(found.values()))


def _time(request: JoinRequest, side: Side, name: str) -> Resolved:
    """The event time of one side: the window's, if it names one, else its watermark's."""
    written = request.window.on if request.window.on is not None else side.time
    if written is None:
        raise QueryError(
            f"the event time of the {name} stream is not known",
            hint='say .withWatermark("<event time>", …) on it, or name a column of both streams in the '
            'window: tumbling(…, on="<event time>")',
        )
    found = resolve(side.df, written, f"event time of the {name} stream")
    if is_wall_time(found.type):
        raise QueryError(
            f"event time {found.name} of the {name} stream has no time zone, but its watermark has one",
            hint="cast it to timestamp",
        )
    return found


def _rest(how: How, number: int, side: Side, keys: Sequence[Key]) -> list[Carried]:
    """The columns of a side that are not keys."""
    optional = keeps(how, RIGHT if number == LEFT else LEFT)
    found = []
    for name in side.df.columns:
        column = resolve(side.df, F.col("`" + name.replace("`", "``") + "`"), f"{SIDES[number]} stream")
        if not any(column.same_as(key.written[number]) for key in keys):
            found.append(carried(column, optional))
    return found


def _check_names(request: JoinRequest, keys: Sequence[str], rest: Sequence[list[Carried]]) -> None:
    fold = str.casefold if case_insensitive(request.left.df) else str
    seen: dict[str, str] = {}
    named = [(name, "a key") for name in keys] + [("window", "the window")]
    for side, columns in zip(SIDES, rest, strict=True):
        named += [(one.column.name, f"a column of the {side} stream") for one in columns]
    for name, what in named:
        if fold(name) in seen:
            raise QueryError(
                f"two output columns of the join would be called {name}: {seen[fold(name)]} and {what}",
                hint=f'rename or drop one of them before the join: .withColumnRenamed("{name}", "…")',
            )
        seen[fold(name)] = what


def _name(request: JoinRequest) -> str:
    below = operators_below(request.left.df) + operators_below(request.right.df)
    name = request.name or f"join-{len(below) + 1}"
    if name in below:
        raise QueryError(
            f"the query has two operators of the name {name}",
            hint="give one of them another name: .name(…)",
        )
    return name
