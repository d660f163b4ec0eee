"""Holistic aggregates: functions that need all values of a group at once, so their rows are kept.

They mix with the other aggregates in `agg`, need a window, and come out when it closes. Their results do
not depend on the order in which rows arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column

from headrace.errors import QueryError
from headrace.plan.spec import HolisticKind
from headrace.spark.language.aggregates import Aggregate, Condition, Function

ACCURACY = 10_000  # Spark's default


@dataclass(frozen=True, eq=False)
class HolisticAggregate(Aggregate):
    """A function over all values of a group, with its parameters."""

    kind: HolisticKind
    numbers: tuple[float, ...] = ()
    many: bool = False
    by: str | Column | None = None
    ties: bool = False
    counted: bool = False  # the result is the number of values


def median(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Middle of the non-null values, between the two middle ones of an even number.

    Parameters
    ----------
    column : str or Column
        A number or a decimal.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `double`, as Spark's ``median``; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user", hr.tumbling("1 minute")).agg(usual=hr.median("amount"))
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, usual: double]
    """
    return HolisticAggregate("median", column, "percentile", (0.5,), filter=filter)


def percentile(
    column: str | Column, percentage: float | Sequence[float], *, filter: Condition | None = None
) -> Aggregate:
    """Exact percentile of the non-null values, with Spark's interpolation between ranks.

    Parameters
    ----------
    column : str or Column
        A number or a decimal.
    percentage : float or sequence of float
        One or several shares between 0 and 1.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `double`, or an array of them for several shares; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy(hr.tumbling("1 minute")).agg(p=hr.percentile("amount", [0.5, 0.99]))
    DataFrame[window: struct<start:timestamp,end:timestamp>, p: array<double>]
    """
    shares, many = _shares(percentage, "percentile")
    return HolisticAggregate("percentile", column, "percentile", shares, many, filter=filter)


def approx_percentile(
    column: str | Column,
    percentage: float | Sequence[float],
    accuracy: int = ACCURACY,
    *,
    filter: Condition | None = None,
) -> Aggregate:
    """Value at a percentile: one of the values of the column, as Spark's ``percentile_approx``.

    The rows of a window are kept anyway, so the answer is the exact one whatever the accuracy.

    Parameters
    ----------
    column : str or Column
        A number, decimal, date, timestamp or day-time interval.
    percentage : float or sequence of float
        One or several shares between 0 and 1.
    accuracy : int
        Spark's parameter: an error in rank of ``1 / accuracy`` would be allowed.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A value of the column's type, or an array of them for several shares; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy(hr.tumbling("1 minute")).agg(p=hr.approx_percentile("amount", 0.9))
    DataFrame[window: struct<start:timestamp,end:timestamp>, p: double]
    """
    shares, many = _shares(percentage, "approx_percentile")
    if isinstance(accuracy, bool) or not isinstance(accuracy, int) or accuracy < 1:
        raise QueryError(
            f"approx_percentile: accuracy {accuracy!r}", hint="write a whole number above zero"
        )
    numbers = (*shares, float(accuracy))
    return HolisticAggregate("approx_percentile", column, "approx_percentile", numbers, many, filter=filter)


def mode(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Most frequent non-null value; the smallest of several that are equally frequent.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A value of the column's type, as Spark's ``mode`` with ``deterministic=True``; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user", hr.tumbling("1 minute")).agg(page=hr.mode("page"))
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, page: string]
    """
    return HolisticAggregate("mode", column, "mode", filter=filter)


def top(
    column: str | Column,
    k: int,
    by: str | Column | None = None,
    *,
    ties: bool = False,
    filter: Condition | None = None,
) -> Aggregate:
    """The k largest values, or the values of the k rows in which another column is largest.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    k : int
        How many values at most.
    by : str or Column, optional
        What to order by, largest first; of equal rows the later one comes first, then the larger value.
        Rows in which it is null do not take part. Without it the values themselves are ordered, nulls left
        out.
    ties : bool, default False
        Whether values that equal the last one (in `by`, if given) come too, as with SQL's ``WITH TIES``.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        An array of up to k values, or more with `ties`, largest first; empty without values.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy(hr.tumbling("1 minute")).agg(best=hr.top("user", 3, by="amount"))
    DataFrame[window: struct<start:timestamp,end:timestamp>, best: array<string>]
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise QueryError(f"top: k is {k!r}", hint="write how many values, a whole number above zero")
    return HolisticAggregate("top", column, "top", (float(k),), by=by, ties=ties, filter=filter)


def collect_list(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """All non-null values, ordered by event time, then by value.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        An array; empty without values.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user", hr.tumbling("1 minute")).agg(path=hr.collect_list("page"))
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, path: array<string>]
    """
    return HolisticAggregate("collect_list", column, "list", filter=filter)


def collect_set(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """The distinct non-null values, in order.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        An array; empty without values.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user", hr.tumbling("1 minute")).agg(seen=hr.collect_set("page"))
    DataFrame[user: string, window: struct<start:timestamp,end:timestamp>, seen: array<string>]
    """
    return HolisticAggregate("collect_set", column, "set", filter=filter)


def _shares(percentage: float | Sequence[float], function: Function) -> tuple[tuple[float, ...], bool]:
    """Shares between 0 and 1, and whether they were given as several."""
    many = isinstance(percentage, list | tuple)
    shares = tuple(percentage) if isinstance(percentage, list | tuple) else (percentage,)
    if not shares or not all(isinstance(share, int | float) and 0 <= share <= 1 for share in shares):
        raise QueryError(
            f"{function}: percentage {percentage!r}",
            hint="write a number between 0 and 1, or a list of them",
        )
    return tuple(float(share) for share in shares), many
