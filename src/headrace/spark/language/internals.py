"""Expressions that Spark itself uses inside its aggregates and windows but does not offer as functions."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T


def decimal_mean(
    spark: SparkSession, total: Column, count: Column, kind: T.DecimalType, ansi: bool
) -> Column:
    """`total / count` of decimals, exact and rounded once to `kind`, as Spark's own avg does it.

    SQL's `/` would round to a type of its own first, which has too few digits for wide decimals.
    """
    jvm = spark._jvm
    convert = jvm.org.apache.spark.sql.classic.ExpressionUtils
    result = jvm.org.apache.spark.sql.types.DecimalType(kind.precision, kind.scale)
    operands = [convert.expression(side._jc) for side in (total, count.cast("decimal(20,0)"))]
    division = jvm.org.apache.spark.sql.catalyst.expressions.DecimalDivideWithOverflowCheck
    return type(total)(convert.column(division(*operands, result, None, not ansi)))


def same_micros(spark: SparkSession, column: Column, source: str, target: str) -> Column:
    """A time's 64 bits under another type: `LongType`, `TimestampType` or `TimestampNTZType`.

    Casts between the two timestamp types go through the session's time zone, whose gaps lose times.
    """
    jvm = spark._jvm
    convert = jvm.org.apache.spark.sql.classic.ExpressionUtils
    kinds = jvm.org.apache.spark.sql.types.DataTypes
    conversion = jvm.org.apache.spark.sql.catalyst.expressions.PreciseTimestampConversion
    child = convert.expression(column._jc)
    return type(column)(convert.column(conversion(child, getattr(kinds, source), getattr(kinds, target))))
