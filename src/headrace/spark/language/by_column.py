"""Aggregates of the row in which another column is largest or smallest."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column

from headrace.spark.language.aggregates import Aggregate, Condition


@dataclass(frozen=True, eq=False)
class OrderedAggregate(Aggregate):
    """A value of the first or last row in the order of a column."""

    by: str | Column


def max_by(column: str | Column, by: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Value of the row in which another column is largest, null included.

    Of rows with equal `by` the largest value is kept, so that the result does not depend on the order of
    arrival. Rows in which `by` is null do not take part.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    by : str or Column
        A number, decimal of up to 18 digits, boolean, date or timestamp.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A value of the column's type.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("page").agg(buyer=hr.max_by("user", "amount"))
    DataFrame[page: string, buyer: string]
    """
    return OrderedAggregate("max_by", column, by, filter=filter)


def min_by(column: str | Column, by: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Value of the row in which another column is smallest, null included.

    Of rows with equal `by` the smallest value is kept. Rows in which `by` is null do not take part.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    by : str or Column
        A number, decimal of up to 18 digits, boolean, date or timestamp.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A value of the column's type.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("page").agg(first=hr.min_by("user", "ts"))
    DataFrame[page: string, first: string]
    """
    return OrderedAggregate("min_by", column, by, filter=filter)
