"""A window in the plan of its operator: the rows that have one, and the columns that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.columns import BOUNDS
from headrace.plan.spec import WINDOW_END, WINDOW_START, Field, Window
from headrace.spark.language.columns import Resolved, resolve
from headrace.spark.language.windows import TimeWindow, event_time, expected_end, row_end, window_of
from headrace.spark.windows.assign import BOUNDS_TYPE, assigning
from headrace.spark.windows.custom import Custom
from headrace.spark.windows.settled import Marked


@dataclass(frozen=True, eq=False)
class WindowPlan:
    """The rows of a stream with what its window needs beside the event time."""

    df: DataFrame
    ends: Resolved | None = None  # when a row's window is expected to close
    until: Resolved | None = None  # when a window of the row alone would close
    marker: Resolved | None = None
    bounds: list[Resolved | None] = field(default_factory=list)  # start and end, if they are keys

    def bound_names(self, keys: Sequence[Field]) -> tuple[str, str]:
        """The names on the wire of a window's bounds: the last keys, or those of the host."""
        return (keys[-2].name, keys[-1].name) if self.bounds else (WINDOW_START, WINDOW_END)


def plan_window(window: TimeWindow | None, df: DataFrame, timed: Resolved | None) -> WindowPlan:
    """Resolves what a window needs; rows that are in no window are left out."""
    if window is None or timed is None:
        return WindowPlan(df)
    if isinstance(window, Custom):
        return _custom(window, df, timed)
    if isinstance(window, Marked):
        return WindowPlan(df, marker=_marker(window, df))
    until = row_end(window, df, timed)
    if until is not None:
        df = df.where(until.column > event_time(df.sparkSession, timed))  # as Spark does
    return WindowPlan(df, expected_end(window, df), until)


def named(window: TimeWindow, plan: WindowPlan, name: Callable[[Resolved], str]) -> Window:
    """The window with the names that its columns get on the wire."""
    columns = (plan.ends, plan.until, plan.marker)
    ends, until, marker = (None if column is None else name(column) for column in columns)
    return replace(window_of(window, plan.df), ends=ends, until=until, marker=marker)


def _custom(window: Custom, df: DataFrame, timed: Resolved) -> WindowPlan:
    if not callable(window.assign):
        raise QueryError(f"a custom window takes a function, not {window.assign!r}")
    time = event_time(df.sparkSession, timed)
    columns = [resolve(df, column, "custom_window").column for column in window.columns]
    call = F.arrow_udf(assigning(window.assign), BOUNDS_TYPE)
    rows = df.where(time.isNotNull()).select("*", F.explode(call(time, *columns)).alias(BOUNDS))
    bounds = [resolve(rows, F.col(BOUNDS).getField(name), "custom_window") for name in ("start", "end")]
    fires = None if window.fires is None else instant(df, window.fires, "when a window fires")
    return WindowPlan(rows, fires, bounds[1], None, [*bounds])


def _marker(window: Marked, df: DataFrame) -> Resolved:
    marker = resolve(df, window.marker, "the marker of a session")
    if not isinstance(marker.type, T.BooleanType):
        raise QueryError(
            f"the marker of a session, {marker.name}, is a {marker.type.simpleString()}",
            hint='write a condition, such as F.col("action") == "logout"',
        )
    return marker


def instant(df: DataFrame, written: str | Column, what: str) -> Resolved:
    """A timestamp column."""
    resolved = resolve(df, written, what)
    if not isinstance(resolved.type, T.TimestampType):
        raise QueryError(f"{what}, {resolved.name}, is a {resolved.type.simpleString()}", hint="cast it")
    return resolved
