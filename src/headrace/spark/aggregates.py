"""The aggregate functions that `agg` takes: names only, until an operator is built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column

Function = Literal[
    "count", "sum", "min", "max", "avg", "var_samp", "var_pop", "stddev_samp", "stddev_pop",
    "first", "last", "median", "percentile", "approx_percentile", "mode", "top",
    "collect_list", "collect_set",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Aggregate:
    """A function and the column it reads; None reads whole rows (`count()`)."""

    function: Function
    input: str | Column | None


def count(column: str | Column | None = None) -> Aggregate:
    """Count rows, or the rows in which `column` is not null.

    Parameters
    ----------
    column : str or Column, optional
        What to count; without it (or with ``"*"``) every row counts.

    Returns
    -------
    Aggregate
        A `bigint`, never null.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(n=hr.count(), paid=hr.count("amount"))  # doctest: +SKIP
    """
    return Aggregate("count", None if isinstance(column, str) and column == "*" else column)


def sum(column: str | Column) -> Aggregate:
    """Sum of the non-null values, in Spark's result type.

    Overflow of integers and decimals is as in Spark: an error when ``spark.sql.ansi.enabled`` is true;
    else integers wrap and decimals become null.

    Parameters
    ----------
    column : str or Column
        A number, a decimal or a day-time interval.

    Returns
    -------
    Aggregate
        `bigint` for integers, `double` for floats, `decimal(p+10,s)` for decimals; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(total=hr.sum("amount"))  # doctest: +SKIP
    """
    return Aggregate("sum", column)


def min(column: str | Column) -> Aggregate:
    """Smallest non-null value; NaN is larger than any other number.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.

    Returns
    -------
    Aggregate
        A value of the column's type; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(low=hr.min("amount"))  # doctest: +SKIP
    """
    return Aggregate("min", column)


def max(column: str | Column) -> Aggregate:
    """Largest non-null value; NaN is larger than any other number.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.

    Returns
    -------
    Aggregate
        A value of the column's type; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(top=hr.max("amount"))  # doctest: +SKIP
    """
    return Aggregate("max", column)


def avg(column: str | Column) -> Aggregate:
    """Mean of the non-null values, in Spark's result type.

    Parameters
    ----------
    column : str or Column
        A number, a decimal or a day-time interval.

    Returns
    -------
    Aggregate
        `double`, or `decimal(p+4,s+4)` for decimals; null without values.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(usual=hr.avg("amount"))  # doctest: +SKIP
    """
    return Aggregate("avg", column)


def var_samp(column: str | Column) -> Aggregate:
    """Sample variance; null for fewer than two values.

    Parameters
    ----------
    column : str or Column
        A number.

    Returns
    -------
    Aggregate
        A `double`.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(spread=hr.variance("amount"))  # doctest: +SKIP
    """
    return Aggregate("var_samp", column)


def var_pop(column: str | Column) -> Aggregate:
    """Population variance; null without values.

    Parameters
    ----------
    column : str or Column
        A number.

    Returns
    -------
    Aggregate
        A `double`.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(spread=hr.var_pop("amount"))  # doctest: +SKIP
    """
    return Aggregate("var_pop", column)


def stddev_samp(column: str | Column) -> Aggregate:
    """Sample standard deviation; null for fewer than two values.

    Parameters
    ----------
    column : str or Column
        A number.

    Returns
    -------
    Aggregate
        A `double`.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(spread=hr.stddev("amount"))  # doctest: +SKIP
    """
    return Aggregate("stddev_samp", column)


def stddev_pop(column: str | Column) -> Aggregate:
    """Population standard deviation; null without values.

    Parameters
    ----------
    column : str or Column
        A number.

    Returns
    -------
    Aggregate
        A `double`.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(df).groupBy("user").agg(spread=hr.stddev_pop("amount"))  # doctest: +SKIP
    """
    return Aggregate("stddev_pop", column)


def first(column: str | Column) -> Aggregate:
    """Value of the row with the smallest event time, null included.

    Of rows with equal times the smallest value is kept, so that the result does not depend on the order
    of arrival. Rows without an event time do not take part.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.

    Returns
    -------
    Aggregate
        A value of the column's type.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(df).withWatermark("ts", "10 seconds")  # doctest: +SKIP
    >>> rows.groupBy("user").agg(opened=hr.first("price"))  # doctest: +SKIP
    """
    return Aggregate("first", column)


def last(column: str | Column) -> Aggregate:
    """Value of the row with the largest event time, null included.

    Of rows with equal times the largest value is kept, so that the result does not depend on the order
    of arrival. Rows without an event time do not take part.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.

    Returns
    -------
    Aggregate
        A value of the column's type.

    Examples
    --------
    >>> import headrace as hr
    >>> rows = hr.stream(df).withWatermark("ts", "10 seconds")  # doctest: +SKIP
    >>> rows.groupBy("user").agg(closed=hr.last("price"))  # doctest: +SKIP
    """
    return Aggregate("last", column)


mean = avg
variance = var_samp
stddev = stddev_samp
