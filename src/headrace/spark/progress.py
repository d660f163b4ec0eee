"""`progress`: what the Headrace operators of a query did in their last batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headrace.coordinator.progress import BatchProgress
from headrace.errors import QueryError
from headrace.spark.driver import coordinator_for

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def progress(query: StreamingQuery) -> dict[str, list[BatchProgress]]:
    """The last batches of every Headrace operator in a query, oldest first.

    Parameters
    ----------
    query
        What `writeStream…start()` returned.

    Returns
    -------
    dict
        By operator name. Each batch says rows in and out, late rows, keys, bytes in memory and on storage,
        and how long its steps took at the slowest partition.

    Examples
    --------
    >>> hr.progress(query)["aggregate-1"][-1].late_rows  # doctest: +SKIP
    0
    """
    session = SparkSession.getActiveSession()
    if session is None:
        raise QueryError(
            "there is no Spark session in this thread", hint="call it where the query was started"
        )
    coordinator = coordinator_for(session)
    return {name: coordinator.progress(query.id, name) for name in coordinator.operators(query.id)}
