"""Linear Road as a Spark data source: `spark.readStream.format("linear_road")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.generators.linear_road import REPORTS
from headrace.spark.sources.generated import GeneratedSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LinearRoadSource(GeneratedSource):
    """Position reports."""

    kind = REPORTS


def register(spark: SparkSession) -> None:
    """Registers `format("linear_road")` with a Spark session.

    Examples
    --------
    >>> from headrace.spark.sources.road import register
    >>> register(spark)
    >>> reports = spark.readStream.format("linear_road").option("rate", 2500).load()
    """
    spark.dataSource.register(LinearRoadSource)
