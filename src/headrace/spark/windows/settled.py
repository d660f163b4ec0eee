"""Windows over rows in the order of event time: a number of rows, or all rows up to a marker or a gap."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from pyspark.sql import Column, DataFrame

from headrace.errors import QueryError
from headrace.plan.spec import Window
from headrace.spark.language.windows import ENDLESS, TimeWindow, positive_micros

ROWS_MAX = 100_000


@dataclass(frozen=True, eq=False)
class Counted(TimeWindow):
    """Windows of a number of rows of each key.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.rows(100, 10).every
    10
    """

    aligned: ClassVar[bool] = False
    emits_once: ClassVar[bool] = True

    count: int
    every: int

    def planned(self, df: DataFrame, lateness_us: int) -> Window:
        for what, number in (("rows", self.count), ("every", self.every)):
            if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= ROWS_MAX:
                raise QueryError(
                    f"hr.rows: {what} is {number!r}", hint=f"write a number from 1 to {ROWS_MAX}"
                )
        if self.every > self.count:
            raise QueryError(
                f"windows of {self.count} rows, one every {self.every}, leave rows between them out",
                hint="write every as the number of rows at most",
            )
        return Window(0, count=self.count, step=self.every)


@dataclass(frozen=True, eq=False)
class Marked(TimeWindow):
    """Windows that end with a row that is a marker.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.ended_by("done").marker
    'done'
    """

    aligned: ClassVar[bool] = False
    emits_once: ClassVar[bool] = True

    marker: str | Column
    gap: str | timedelta | None

    def planned(self, df: DataFrame, lateness_us: int) -> Window:
        where = "the gap of a session"
        gap_us = 0 if self.gap is None else positive_micros(df, self.gap, ENDLESS, where)
        return Window(gap_us, marker="")  # the request names the input


def rows(count: int, every: int | None = None, on: str | Column | None = None) -> Counted:
    """Windows of ``count`` rows of each key, in the order of event time.

    The watermark must have passed a row before it counts, so that the order of arrival does not matter.
    Rows of equal times go by their columns. A window is emitted in the batch in which the watermark
    passes its last row; a window that is never filled is never emitted, and its rows stay in state.

    Parameters
    ----------
    count : int
        Rows of a window.
    every : int, optional
        Rows from the start of a window to that of the next one, at most ``count``; by default ``count``.
    on : str or Column, optional
        The event time; by default the watermark's column, as for ``tumbling``.

    Returns
    -------
    Counted
        A window to pass to ``groupBy``; it appears in the output as ``window: struct<start, end>``: from
        the time of its first row to a microsecond after that of its last one.

    Examples
    --------
    >>> import headrace as hr
    >>> stream = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> stream.groupBy("user", hr.rows(100)).agg(n=hr.count(), usual=hr.median("amount"))
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, n: bigint, usual: double]
    >>> stream.groupBy("user", hr.rows(100, 10)).agg(usual=hr.median("amount"))
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, usual: double]
    """
    return Counted(on, "0 seconds", count, count if every is None else every)


def ended_by(
    marker: str | Column, gap: str | timedelta | None = None, *, on: str | Column | None = None
) -> Marked:
    """Sessions of each key that end with a marker row, or with a gap, in the order of event time.

    A session has all rows of its key behind the last marker, up to and with the next one. The watermark
    must have passed a row before it counts, so that the order of arrival does not matter. Of rows with
    equal times the marker is the last. Without ``gap`` a session that has no marker is not emitted, and its
    rows stay in state.

    Parameters
    ----------
    marker : str or Column
        A boolean, true in the last row of a session, such as ``F.col("action") == "logout"``.
    gap : str or timedelta, optional
        For how long a key must be silent until its session is over without a marker, such as
        ``"30 minutes"``. Rows that are a gap apart are of one session, as in ``session``.
    on : str or Column, optional
        The event time; by default the watermark's column, as for ``tumbling``.

    Returns
    -------
    Marked
        A window to pass to ``groupBy``; it appears in the output as ``window: struct<start, end>``: from
        the time of its first row to a microsecond after that of its marker, or to the end of the gap behind
        its last row.

    Examples
    --------
    >>> import headrace as hr
    >>> from pyspark.sql import functions as F
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user", hr.ended_by(F.col("amount") == 0)).agg(n=hr.count())
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, n: bigint]
    """
    return Marked(on, "0 seconds", marker, gap)
