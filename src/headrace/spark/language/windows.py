"""Windows as the user wrote them, and the event time that they and `first`/`last` go by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from py4j.java_gateway import get_field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.spec import WINDOW_END, WINDOW_START, Window
from headrace.spark.language.columns import Resolved, first_line, resolve
from headrace.spark.language.internals import same_micros

_DAY_US = 86_400_000_000
SLICES_MAX = 10_000  # of one window
ENDLESS = "sessions with a gap of {} never last"


@dataclass(frozen=True, eq=False)
class TimeWindow:
    """What `groupBy` takes as a window: the event time, and for how long a closed window takes rows."""

    on: str | Column | None
    lateness: str | timedelta

    aligned: ClassVar[bool] = True  # windows of all keys begin and end together
    emits_once: ClassVar[bool] = False  # a window comes out when it is complete, never before

    def planned(self, df: DataFrame, lateness_us: int) -> Window | None:
        """The window in the plan; None: `window_of` plans the class."""
        return None


@dataclass(frozen=True, eq=False)
class Tumbling(TimeWindow):
    """Fixed windows of one width that do not overlap.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.tumbling("1 day", offset="6 hours")
    Tumbling(on=None, lateness='0 seconds', width='1 day', offset='6 hours')
    """

    width: str | timedelta
    offset: str | timedelta


@dataclass(frozen=True, eq=False)
class Sliding(TimeWindow):
    """Fixed windows of one width, one every slide, so that a row is in several.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.sliding("10 minutes", "1 minute").slide
    '1 minute'
    """

    width: str | timedelta
    slide: str | timedelta
    offset: str | timedelta


@dataclass(frozen=True, eq=False)
class Session(TimeWindow):
    """Windows of each key's own: as long as its rows are no further apart than the gap.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.session("10 seconds", lateness="1 minute").lateness
    '1 minute'
    """

    aligned: ClassVar[bool] = False

    gap: str | timedelta | Column
    ends: str | Column | None = None


def tumbling(
    width: str | timedelta,
    on: str | Column | None = None,
    *,
    offset: str | timedelta = "0 seconds",
    lateness: str | timedelta = "0 seconds",
) -> Tumbling:
    """Tumbling windows ``[start, start + width)``, as Spark's ``window(on, width, startTime=offset)``.

    Parameters
    ----------
    width : str or timedelta
        Width of a window, such as ``"1 minute"`` or ``"1 hour 30 minutes"``.
    on : str or Column, optional
        The event time; by default the watermark's column. A ``window`` column of an earlier operator
        stands for the last microsecond of its window, as Spark's ``window_time`` does.
    offset : str or timedelta
        Moves the starts: with width ``"1 day"`` and offset ``"6 hours"``, days begin at six.
    lateness : str or timedelta
        For how long after the watermark has passed its end a window still takes rows. Groups that such
        rows change are emitted again, whole; then the window is dropped, and later rows are late.

    Returns
    -------
    Tumbling
        A window to pass to ``groupBy``; it appears in the output as ``window: struct<start, end>``.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user", hr.tumbling("1 minute")).agg(n=hr.count())
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, n: bigint]
    """
    return Tumbling(on, lateness, width, offset)


def sliding(
    width: str | timedelta,
    slide: str | timedelta,
    on: str | Column | None = None,
    *,
    offset: str | timedelta = "0 seconds",
    lateness: str | timedelta = "0 seconds",
) -> Sliding:
    """Sliding windows ``[start, start + width)``, one every ``slide``, as Spark's ``window`` makes them.

    A row is kept once, however many windows it is in: windows are put together from slices.

    Parameters
    ----------
    width : str or timedelta
        Width of a window, such as ``"10 minutes"``.
    slide : str or timedelta
        From one start to the next, such as ``"1 minute"``; at most the width.
    on : str or Column, optional
        The event time; by default the watermark's column, as for ``tumbling``.
    offset : str or timedelta
        Moves the starts.
    lateness : str or timedelta
        For how long after the watermark has passed its end a window still takes rows. Groups that such
        rows change are emitted again, whole; then the window is dropped, and later rows are late.

    Returns
    -------
    Sliding
        A window to pass to ``groupBy``; it appears in the output as ``window: struct<start, end>``.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user", hr.sliding("10 minutes", "1 minute")).agg(n=hr.count())
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, n: bigint]
    """
    return Sliding(on, lateness, width, slide, offset)


def session(
    gap: str | timedelta | Column,
    on: str | Column | None = None,
    *,
    lateness: str | timedelta = "0 seconds",
    ends: str | Column | None = None,
) -> Session:
    """Sessions: rows of a key that are at most ``gap`` apart, as Spark's ``session_window(on, gap)``.

    A session lasts from its first row's time to ``gap`` after its last row's. Rows may come out of order:
    one that touches two sessions makes them one. A row is late when a session of its own would be over.

    Parameters
    ----------
    gap : str, timedelta or Column
        For how long a key must be silent until its session is over, such as ``"10 seconds"``. A Column
        gives each row a gap of its own, as in Spark: an interval, or a text such as ``"10 seconds"``. The
        session then ends with the latest end of its rows. Rows whose gap is null or not above zero are
        dropped.
    on : str or Column, optional
        The event time; by default the watermark's column, as for ``tumbling``.
    lateness : str or timedelta
        For how long after the watermark has passed its end a session still takes rows. One that such rows
        change is emitted again, whole: at once, or when the watermark passes its new end.
    ends : str or Column, optional
        A prediction, for sessions whose rows are kept: a timestamp before which, by this row,
        its session will not end. The latest one of a session's rows counts. Results do not depend on it:
        rows of a session that is not expected to end yet are not read ahead. Without it a session is
        expected to end ``gap`` after its last row.

    Returns
    -------
    Session
        A window to pass to ``groupBy``; it appears in the output as ``window: struct<start, end>``.

    Notes
    -----
    With ``emit="changes"`` a session comes again whenever a batch changes it, with the bounds that it has
    then. Sessions that became part of it are not withdrawn: the last row that came for a key and covers
    their time stands for them.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "4 seconds")
    >>> rows.groupBy("user", hr.session("10 seconds")).agg(n=hr.count())
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, n: bigint]
    """
    return Session(on, lateness, gap, ends)


def expected_end(window: TimeWindow | None, df: DataFrame) -> Resolved | None:
    """The column of the time at which a session is expected to end, if the user gave one."""
    if not isinstance(window, Session) or window.ends is None:
        return None
    end = resolve(df, window.ends, "the expected end of a session")
    if not isinstance(end.type, T.TimestampType):
        raise QueryError(
            f"the expected end of a session, {end.name}, is a {end.type.simpleString()}",
            hint="write a timestamp, such as F.col('opened') + F.expr('interval 1 hour')",
        )
    return end


def row_end(window: TimeWindow | None, df: DataFrame, timed: Resolved) -> Resolved | None:
    """The end of a session of each row alone, if the gap is a column."""
    if not isinstance(window, Session) or not isinstance(window.gap, Column):
        return None
    gap = resolve(df, window.gap, "the gap of a session")
    if isinstance(gap.type, T.StringType):
        gap = resolve(df, window.gap.cast("interval"), "the gap of a session")
    if not isinstance(gap.type, T.DayTimeIntervalType | T.CalendarIntervalType):
        raise QueryError(
            f"the gap of a session, {gap.name}, is a {gap.type.simpleString()}",
            hint="write an interval, such as F.make_dt_interval(…), or a text such as '10 seconds'",
        )
    return resolve(df, event_time(df.sparkSession, timed) + gap.column, "the end of a session")


def window_of(window: TimeWindow, df: DataFrame) -> Window:
    """The window in microseconds; durations are read by Spark's own parser."""
    lateness = micros(df, window.lateness, "the lateness of a window")
    if lateness < 0:
        raise QueryError(
            f"a lateness of {window.lateness} is below zero",
            hint="write how long a closed window takes rows",
        )
    planned = window.planned(df, lateness) if isinstance(window, TimeWindow) else None
    if planned is not None:
        return planned
    if isinstance(window, Session) and isinstance(window.gap, Column):
        return Window(0, session=True, lateness_us=lateness)
    if isinstance(window, Session):
        gap = positive_micros(df, window.gap, ENDLESS, "the gap of a session")
        return Window(gap, session=True, lateness_us=lateness)
    if not isinstance(window, Tumbling | Sliding):
        hint = "write hr.tumbling(…), hr.sliding(…), hr.session(…), hr.rows(…) or hr.custom_window(…)"
        raise QueryError(f"{window!r} is not a window", hint=hint)
    width = positive_micros(df, window.width, "a window of {} has no width", "the width of a window")
    slide = width
    if isinstance(window, Sliding):
        wrong = "windows that slide by {} stand still"
        slide = positive_micros(df, window.slide, wrong, "the slide of a window")
    offset = micros(df, window.offset, "the offset of a window") % slide
    return _checked(Window(width, offset, slide if slide != width else 0, lateness_us=lateness), window)


def positive_micros(df: DataFrame, duration: str | timedelta, wrong: str, where: str) -> int:
    """A duration above zero in microseconds; `wrong` describes another one."""
    us = micros(df, duration, where)
    if us <= 0:
        raise QueryError(wrong.format(duration), hint="write a duration above zero")
    return us


def _checked(made: Window, written: Tumbling | Sliding) -> Window:
    """Refuse windows that leave gaps between them, and those that fall into too many slices."""
    if made.every_us > made.width_us:
        slide = written.slide if isinstance(written, Sliding) else written.width
        raise QueryError(
            f"windows of {written.width} that slide by {slide} leave rows between them out",
            hint="slide by the width at most, or filter the rows and use hr.tumbling(…)",
        )
    slices = made.width_us // made.slice_us
    if slices > SLICES_MAX:
        raise QueryError(
            f"windows of {written.width} with this slide fall into {slices:,} slices of "
            f"{made.slice_us:,} µs, and at most {SLICES_MAX:,} are kept apart",
            hint="choose a width that is a multiple of the slide, or a longer slide",
        )
    return made


def micros(df: DataFrame, duration: str | timedelta, where: str) -> int:
    """A duration in microseconds; months have no fixed length and are refused."""
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if not isinstance(duration, str):
        raise QueryError(f"{where} must be a duration, not {duration!r}", hint='write it as in "1 minute"')
    interval = _interval(df, duration, where)
    if get_field(interval, "months"):
        raise QueryError(
            f"{where}: {duration} has no fixed length", hint="write it in days, weeks or smaller units"
        )
    return int(get_field(interval, "days")) * _DAY_US + int(get_field(interval, "microseconds"))


def _interval(df: DataFrame, duration: str, where: str) -> Any:
    jvm = df.sparkSession._jvm
    try:
        text = jvm.org.apache.spark.unsafe.types.UTF8String.fromString(duration)
        return jvm.org.apache.spark.sql.catalyst.util.IntervalUtils.stringToInterval(text)
    except Exception as error:
        raise QueryError(f"{where}: {first_line(error)}", hint='write it as in "1 minute"') from None


def is_wall_time(kind: T.DataType) -> bool:
    """Whether event times of this type are without a time zone."""
    if isinstance(kind, T.StructType):
        return "end" in kind.names and is_wall_time(kind["end"].dataType)
    return isinstance(kind, T.TimestampNTZType)


def event_time(spark: SparkSession, resolved: Resolved) -> Column:
    """The event time as a timestamp; a `window` column means the last microsecond of its window.

    Times without a zone travel as if they were UTC, and `window_column` turns them back.
    """
    kind, column = resolved.type, resolved.column
    if isinstance(kind, T.StructType) and {"start", "end"} <= set(kind.names):
        end = _instant(spark, column.getField("end"), kind["end"].dataType)
        if end is not None:
            return F.timestamp_micros(F.unix_micros(end) - F.lit(1))
    time = _instant(spark, column, kind)
    if time is None:
        raise QueryError(
            f"event time {resolved.name} has the type {kind.simpleString()}",
            hint="event time is a timestamp or a window: cast the column, as in F.to_timestamp(…)",
        )
    return time


def window_column(
    spark: SparkSession, kind: T.DataType, names: tuple[str, str] = (WINDOW_START, WINDOW_END)
) -> Column:
    """The `window` struct of the output, for event times of `kind`; `names` are those of its bounds."""
    bounds = [F.col(name) for name in names]
    if is_wall_time(kind):
        raw = [same_micros(spark, bound, "TimestampType", "LongType") for bound in bounds]
        bounds = [same_micros(spark, bound, "LongType", "TimestampNTZType") for bound in raw]
    return F.struct(bounds[0].alias("start"), bounds[1].alias("end")).alias("window")


def _instant(spark: SparkSession, column: Column, kind: T.DataType) -> Column | None:
    if isinstance(kind, T.TimestampType):
        return column
    if isinstance(kind, T.DateType):
        return column.cast("timestamp")
    if isinstance(kind, T.TimestampNTZType):
        return F.timestamp_micros(same_micros(spark, column, "TimestampNTZType", "LongType"))
    return None
