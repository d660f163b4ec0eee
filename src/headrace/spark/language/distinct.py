"""Counts of distinct values: exact, and estimated by coupons.

A value draws one coupon by its hash: a bucket, all equally likely, and a rank, each half as likely as the
one before. The number of values is estimated from the number of different coupons that a group has drawn.
So state is bounded by the number of coupons, whatever the number of values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.plan.coupons import RANKS, STEPS, curve
from headrace.spark.language.aggregates import Aggregate, Condition
from headrace.spark.language.holistic import HolisticAggregate

RSD_MIN, RSD_MAX = 0.005, 0.4
_ERROR = 0.7  # relative standard error times the root of the number of buckets


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


@dataclass(frozen=True, eq=False)
class ApproximateCount(Aggregate):
    """A count of distinct coupons, from which the number of values is estimated."""

    buckets: int


def approx_count_distinct(
    column: str | Column, rsd: float = 0.05, *, filter: Condition | None = None
) -> Aggregate:
    """Estimate the number of distinct non-null values.

    State is bounded: some thousand small entries per group for the default error, however many values there
    are. Windows that are emitted when they close keep their rows until then. The result does not depend on
    the order of rows or on the cut into batches.

    Parameters
    ----------
    column : str or Column
        Any column but a map or a variant.
    rsd : float
        The relative standard deviation of the estimate, from 0.005 to 0.4.
    filter : Column or str, optional
        Only rows that meet this condition take part.

    Returns
    -------
    Aggregate
        A `bigint`, never null.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.stream(events).groupBy("user").agg(amounts=hr.approx_count_distinct("amount"))
    DataFrame[user: string, amounts: bigint]
    """
    if not isinstance(rsd, int | float) or not RSD_MIN <= rsd <= RSD_MAX:
        raise QueryError(f"approx_count_distinct: rsd is {rsd!r}", hint=f"write {RSD_MIN} to {RSD_MAX}")
    buckets = 1 << math.ceil(math.log2((_ERROR / rsd) ** 2))
    value = F.col(column) if isinstance(column, str) else column
    return ApproximateCount("count_distinct", coupon(value, buckets), filter=filter, buckets=buckets)


def coupon(value: Column, buckets: int) -> Column:
    """The coupon of a value as a number; null for a null."""
    hashed = F.xxhash64(value)
    bits = buckets.bit_length() - 1
    bucket = hashed.bitwiseAND(F.lit(buckets - 1))
    rest = F.shiftrightunsigned(hashed, bits)
    lowest = rest.bitwiseAND(-rest)  # the lowest bit that is set
    rank = F.least(F.log2(lowest.cast("double")).cast("bigint"), F.lit(RANKS - 1))
    drawn = bucket * F.lit(RANKS) + F.when(rest == 0, F.lit(RANKS - 1)).otherwise(rank)
    return F.when(value.isNotNull(), drawn.cast("int"))


def estimated(coupons: Column, buckets: int) -> Column:
    """The number of values that have drawn so many different coupons, on average."""
    points = F.array(*(F.lit(point) for point in curve()))
    place = F.least(coupons / F.lit(buckets) * F.lit(STEPS), F.lit(float(len(curve()) - 2)))
    low = F.floor(place).cast("int")
    before, after = F.get(points, low), F.get(points, low + F.lit(1))
    return F.round(F.expm1(before + (after - before) * (place - low)) * F.lit(buckets)).cast("bigint")
