"""Makes `format("headrace")` known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headrace.spark.build.session import choose_python
from headrace.spark.driver.driver import coordinator_for
from headrace.spark.tables.shipped import shipped

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_MARK = "_headrace_registered"


def register(spark: SparkSession) -> None:
    """Register the data source `headrace` in a session, and let Spark push filters into it.

    A registered source has its driver, and refuses to write the state of a query that runs there.
    `hr.stream` registers it too; Spark finds it by itself where this package is installed. A setting of
    `spark.sql.python.filterPushdown.enabled` that the user made stays as it is.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.register(spark)
    >>> spark.read.format("headrace").option("checkpoint", checkpoint).load().columns
    ['operator', 'work', 'window', 'store', 'keys', 'partitions', 'version', ...]
    """
    if getattr(spark, _MARK, False):
        return
    setattr(spark, _MARK, True)
    running = coordinator_for(spark)
    choose_python(spark.sparkContext)
    spark.dataSource.register(shipped((running.address, running.secret)))
    if PUSHDOWN not in spark.conf.getAll:
        spark.conf.set(PUSHDOWN, "true")
