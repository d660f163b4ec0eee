"""Custom windows: a function of the user gives the bounds of each row's windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame

from headrace.plan.spec import Window
from headrace.spark.language.windows import TimeWindow

Assign = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Custom(TimeWindow):
    """Windows whose bounds a function gives.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.custom_window(lambda times: (times, times), lateness="1 minute").lateness
    '1 minute'
    """

    aligned: ClassVar[bool] = False

    assign: Assign
    columns: tuple[str | Column, ...]
    fires: str | Column | None

    def planned(self, df: DataFrame, lateness_us: int) -> Window:
        """Rows of one key and equal bounds are a session that lasts until the bounds' end."""
        return Window(0, session=True, lateness_us=lateness_us)


def custom_window(
    assign: Assign,
    *columns: str | Column,
    on: str | Column | None = None,
    lateness: str | timedelta = "0 seconds",
    fires: str | Column | None = None,
) -> Custom:
    """Windows of your own: a vectorised function from event times and columns to window bounds.

    Rows of one key with equal bounds are one group. It closes when the watermark passes its end.

    Parameters
    ----------
    assign : callable
        ``assign(times, *columns)`` gets Arrow arrays, the event times first, and returns the bounds of
        each row's window: a pair of timestamp arrays ``(starts, ends)``, a struct array with the fields
        ``start`` and ``end``, or a list array of such structs where a row may be in several windows or in
        none. A window contains its row: ``start <= time < end``. It runs in Spark's Python worker before
        the shuffle, for a batch of rows at a time. It must give the same bounds for the same row, because
        Spark repeats batches after a failure.
    *columns : str or Column
        What the function gets beside the event times, such as key columns.
    on : str or Column, optional
        The event time; by default the watermark's column, as for ``tumbling``.
    lateness : str or timedelta
        For how long after the watermark has passed its end a window still takes rows.
    fires : str or Column, optional
        A prediction, for windows whose rows are kept: a timestamp before which the window will not close,
        as far as this row knows. Without it a window is expected to close at its end. Results do not
        depend on it; it decides which rows are read ahead.

    Returns
    -------
    Custom
        A window to pass to ``groupBy``; it appears in the output as ``window: struct<start, end>``.

    Examples
    --------
    >>> import headrace as hr
    >>> import pyarrow as pa
    >>> import pyarrow.compute as pc
    >>> def hours(times):
    ...     starts = pc.floor_temporal(times, unit="hour")
    ...     return starts, pc.add(starts, pa.scalar(3_600_000_000, pa.duration("us")))
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user", hr.custom_window(hours)).agg(n=hr.count())
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, n: bigint]
    """
    return Custom(on, lateness, assign, columns, fires)
