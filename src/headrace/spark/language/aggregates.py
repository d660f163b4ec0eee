"""The aggregate functions that `agg` takes: names only, until an operator is built from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pyspark.sql import Column

Function = Literal[
    "count", "sum", "min", "max", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop",
    "first", "last", "max_by", "min_by", "count_distinct",
    "median", "percentile", "approx_percentile", "mode", "top",
    "collect_list", "collect_set",
]  # fmt: skip


Condition: TypeAlias = Column | str  # a boolean column, or SQL text of one


@dataclass(frozen=True, eq=False)
class Aggregate:
    """A function and the column it reads; None reads whole rows (`count()`).

    Examples
    --------
    >>> import headrace as hr
    >>> hr.sum("amount").function
    'sum'
    """

    function: Function
    input: str | Column | None
    filter: Condition | None = field(default=None, kw_only=True)  # rows that take part; None: all


def count(column: str | Column | None = None, *, filter: Condition | None = None) -> Aggregate:
    """Count rows, or the rows in which `column` is not null.

    Parameters
    ----------
    column : str or Column, optional
        What to count; without it (or with ``"*"``) every row counts.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `bigint`, never null.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(n=hr.count(), paid=hr.count("amount"))
    DataFrame[user: string, n: bigint, paid: bigint]
    """
    read = None if isinstance(column, str) and column == "*" else column
    return Aggregate("count", read, filter=filter)


def sum(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Sum of the non-null values, in Spark's result type.

    Overflow of integers and decimals is as in Spark: an error when ``spark.sql.ansi.enabled`` is true;
    else integers wrap and decimals become null.

    Parameters
    ----------
    column : str or Column
        A number, a decimal or a day-time interval.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        `bigint` for integers, `double` for floats, `decimal(p+10,s)` for decimals; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(total=hr.sum("amount"))
    DataFrame[user: string, total: double]
    """
    return Aggregate("sum", column, filter=filter)


def min(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Smallest non-null value; NaN is larger than any other number.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A value of the column's type; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(low=hr.min("amount"))
    DataFrame[user: string, low: double]
    """
    return Aggregate("min", column, filter=filter)


def max(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Largest non-null value; NaN is larger than any other number.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A value of the column's type; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(top=hr.max("amount"))
    DataFrame[user: string, top: double]
    """
    return Aggregate("max", column, filter=filter)


def avg(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Mean of the non-null values, in Spark's result type.

    Parameters
    ----------
    column : str or Column
        A number, a decimal or a day-time interval.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        `double`, or `decimal(p+4,s+4)` for decimals; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(usual=hr.avg("amount"))
    DataFrame[user: string, usual: double]
    """
    return Aggregate("avg", column, filter=filter)


def var_samp(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Sample variance; null for fewer than two values.

    Parameters
    ----------
    column : str or Column
        A number.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `double`.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(spread=hr.variance("amount"))
    DataFrame[user: string, spread: double]
    """
    return Aggregate("var_samp", column, filter=filter)


def var_pop(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Population variance; null without values.

    Parameters
    ----------
    column : str or Column
        A number.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `double`.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(spread=hr.var_pop("amount"))
    DataFrame[user: string, spread: double]
    """
    return Aggregate("var_pop", column, filter=filter)


def stddev_samp(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Sample standard deviation; null for fewer than two values.

    Parameters
    ----------
    column : str or Column
        A number.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `double`.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(spread=hr.stddev("amount"))
    DataFrame[user: string, spread: double]
    """
    return Aggregate("stddev_samp", column, filter=filter)


def stddev_pop(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Population standard deviation; null without values.

    Parameters
    ----------
    column : str or Column
        A number.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `double`.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(spread=hr.stddev_pop("amount"))
    DataFrame[user: string, spread: double]
    """
    return Aggregate("stddev_pop", column, filter=filter)


def first(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Value of the row with the smallest event time, null included.

    Of rows with equal times the smallest value is kept, so that the result does not depend on the order
    of arrival. Rows without an event time do not take part.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A value of the column's type.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user").agg(opened=hr.first("amount"))
    DataFrame[user: string, opened: double]
    """
    return Aggregate("first", column, filter=filter)


def last(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Value of the row with the largest event time, null included.

    Of rows with equal times the largest value is kept, so that the result does not depend on the order
    of arrival. Rows without an event time do not take part.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A value of the column's type.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(events).withWatermark("ts", "10 seconds")
    >>> rows.groupBy("user").agg(closed=hr.last("amount"))
    DataFrame[user: string, closed: double]
    """
    return Aggregate("last", column, filter=filter)


mean = avg
variance = var_samp
stddev = stddev_samp
