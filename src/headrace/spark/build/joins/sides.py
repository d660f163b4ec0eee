"""Parts that joins of two streams share: watermarks, event times, columns, names and spellings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import QueryError, did_you_mean
from headrace.plan.spec import LEFT
from headrace.spark.build.joins.keys import Key
from headrace.spark.build.joins.rows import Carried, carried
from headrace.spark.build.parts import refuse_changelog, supported
from headrace.spark.language.columns import Resolved, case_insensitive, resolve
from headrace.spark.language.plans import Watermark, operators_below, watermarks
from headrace.spark.language.windows import is_wall_time

SIDES = ("left", "right")
Sides = tuple["Side", "Side"]
Times = tuple[str | Column | None, str | Column | None]


@dataclass(frozen=True, eq=False)
class Side:
    """One stream of a join, and its watermark's column if that is known."""

    df: DataFrame
    time: str | Column | None


def checked_times(times: Any) -> Times:
    """The event times that the user named, left and right; None for that of the watermark."""
    if isinstance(times, tuple | list) and len(times) == 2:
        return times[0], times[1]
    raise QueryError(f"times={times!r} is not a pair of columns", hint='write times=("<left>", "<right>")')


def check_sides(sides: Sides) -> None:
    """Refuses streams that cannot be joined with each other."""
    if sides[0].df.sparkSession is not sides[1].df.sparkSession:
        raise QueryError("the two streams of a join belong to different sessions", hint="build both in one")
    twice = set(operators_below(sides[0].df)) & set(operators_below(sides[1].df))
    if twice:
        raise QueryError(
            f"operator {min(twice)} is on both sides of the join",
            hint="two operators need two names: .name(…); one operator cannot be read twice",
        )
    for side in sides:
        refuse_changelog(side.df)


def marks_of(sides: Sides, without: str) -> tuple[Watermark, ...]:
    """The watermark nodes of both sides; `without` is what a stream without one would cause."""
    by_node: dict[str, Watermark] = {}
    for side, name in zip(sides, SIDES, strict=True):
        marks = watermarks(side.df)
        if not marks:
            raise QueryError(
                f"the {name} stream of the join has no watermark, so {without}",
                hint=f'write .withWatermark("<event time>", "10 seconds") on the {name} stream',
            )
        by_node |= {mark.node: mark for mark in marks}
    return supported(sides[LEFT].df, tuple(by_node.values()))


def time_of_side(side: Side, name: str, written: str | Column | None, hint: str) -> Resolved:
    """The event time of one side: `written`, else its watermark's."""
    written = side.time if written is None else written
    if written is None:
        raise QueryError(f"the event time of the {name} stream is not known", hint=hint)
    time = resolve(side.df, written, f"event time of the {name} stream")
    if is_wall_time(time.type):
        raise QueryError(
            f"event time {time.name} of the {name} stream has no time zone, but its watermark has one",
            hint="cast it to timestamp",
        )
    return time


def spelled(how: Any, known: Sequence[str]) -> str:
    """The join that one of Spark's spellings means; raises where there is none."""
    words = str(how).lower().replace("_", "").replace(" ", "")
    meant = "full" if words == "outer" else words.removesuffix("outer")
    meant = {"leftsemi": "semi", "leftanti": "anti"}.get(meant, meant)
    if meant in known:
        return meant
    raise QueryError(
        f"how={how!r} is not a join of two streams here",
        hint=f"{did_you_mean(words, known, after=' ')}write one of {', '.join(known)}",
    )


def rest_of(number: int, side: Side, keys: Sequence[Key], *, optional: bool) -> list[Carried]:
    """The columns of a side that are not keys; `optional`: the side may be missing in a result."""
    columns = []
    for name in side.df.columns:
        column = resolve(side.df, F.col("`" + name.replace("`", "``") + "`"), f"{SIDES[number]} stream")
        if not any(column.same_as(key.written[number]) for key in keys):
            columns.append(carried(column, optional))
    return columns


Named = tuple[str, str]  # an output column, and what it is


def check_names(df: DataFrame, named: Sequence[Named], rest: Sequence[list[Carried]]) -> None:
    """Refuses output columns of one name."""
    fold = str.casefold if case_insensitive(df) else str
    seen: dict[str, str] = {}
    output = [*named]
    for side, columns in zip(SIDES, rest, strict=True):
        output += [(one.column.name, f"a column of the {side} stream") for one in columns]
    for name, what in output:
        if fold(name) in seen:
            raise QueryError(
                f"two output columns of the join would be called {name}: {seen[fold(name)]} and {what}",
                hint=f'rename or drop one of them before the join: .withColumnRenamed("{name}", "…")',
            )
        seen[fold(name)] = what


def join_name(sides: Sides, requested: str | None) -> str:
    below = operators_below(sides[0].df) + operators_below(sides[1].df)
    name = requested or f"join-{len(below) + 1}"
    if name in below:
        raise QueryError(
            f"the query has two operators of the name {name}",
            hint="give one of them another name: .name(…)",
        )
    return name
