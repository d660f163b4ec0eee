"""`stop`: ends a query and waits until its state is on shared storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headrace.coordinator.drain import not_published
from headrace.spark.build.recipe import session_options
from headrace.spark.driver.driver import coordinator_for

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def stop(query: StreamingQuery, within_s: float | None = None) -> None:
    """Stop a query and wait until its state is on shared storage.

    With `upload` and `async` commits the last state of a query may be on a machine's own disk only. Where
    that disk goes with the executors, stop queries like this before they go. The end of the application
    (`spark.stop()`) waits in the same way.

    Parameters
    ----------
    query
        A query that runs, or one that has ended by itself.
    within_s
        The longest wait; `spark.headrace.stop.wait` if it is not given.

    Raises
    ------
    TryAgain
        Some state was not published in time. It is in the local log of its machine.

    Examples
    --------
    >>> import headrace as hr
    >>> counts = hr.stream(events).groupBy("user").agg(n=hr.count())
    >>> writer = counts.writeStream.format("noop").option("checkpointLocation", f"{folder}/stopped")
    >>> query = hr.start(writer)
    >>> query.processAllAvailable()
    >>> hr.stop(query)
    >>> query.isActive
    False
    """
    query.stop()
    spark = SparkSession.active()
    limit_s = session_options(spark).stop_wait_s if within_s is None else within_s
    left = coordinator_for(spark).drain(limit_s, [str(query.id)])
    if left:
        raise not_published(left, limit_s)
