"""Cluster monitoring as a Spark data source: `spark.readStream.format("cluster_monitoring")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.generators.cluster import EVENTS
from headrace.spark.sources.generated import GeneratedSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ClusterSource(GeneratedSource):
    """Task events."""

    kind = EVENTS


def register(spark: SparkSession) -> None:
    """Registers `format("cluster_monitoring")` with a Spark session.

    Examples
    --------
    >>> from headrace.spark.sources.cluster import register
    >>> register(spark)
    >>> events = spark.readStream.format("cluster_monitoring").load()
    """
    spark.dataSource.register(ClusterSource)
