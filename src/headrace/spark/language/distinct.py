"""Aggregates of distinct values."""

from __future__ import annotations

from pyspark.sql import Column

from headrace.spark.language.aggregates import Aggregate, Condition
from headrace.spark.language.holistic import HolisticAggregate


def count_distinct(column: str | Column, *, filter: Condition | None = None) -> Aggregate:
    """Count the distinct non-null values, exactly.

    Every value of a group is kept in state; for windows that are emitted when they close, every row.

    Parameters
    ----------
    column : str or Column
        Any column that state can hold.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `bigint`, never null.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("page").agg(users=hr.count_distinct("user"))
    DataFrame[page: string, users: bigint]
    """
    return Aggregate("count_distinct", column, filter=filter)


def kept(aggregate: Aggregate) -> Aggregate:
    """A count of distinct values over kept rows: the size of their set."""
    if aggregate.function != "count_distinct":
        return aggregate
    return HolisticAggregate(
        "count_distinct", aggregate.input, "set", counted=True, filter=aggregate.filter
    )
