"""Linear Road as a Spark data source: `spark.readStream.format("linear_road")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.bench.linear_road.reports import REPORTS
from headrace.spark.generated_source import GeneratedSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LinearRoadSource(GeneratedSource):
    """Position reports."""

    kind = REPORTS


def register(spark: SparkSession) -> None:
    """Make `format("linear_road")` known to a session.

    Examples
    --------
    >>> register(spark)  # doctest: +SKIP
    >>> reports = spark.readStream.format("linear_road").option("rate", 2500).load()  # doctest: +SKIP
    """
    spark.dataSource.register(LinearRoadSource)
