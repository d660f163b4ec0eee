"""Cluster monitoring as a Spark data source: `spark.readStream.format("cluster_monitoring")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.bench.cluster.events import EVENTS
from headrace.spark.generated_source import GeneratedSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ClusterSource(GeneratedSource):
    """Task events."""

    kind = EVENTS


def register(spark: SparkSession) -> None:
    """Make `format("cluster_monitoring")` known to a session.

    Examples
    --------
    >>> register(spark)  # doctest: +SKIP
    >>> events = spark.readStream.format("cluster_monitoring").load()  # doctest: +SKIP
    """
    spark.dataSource.register(ClusterSource)
