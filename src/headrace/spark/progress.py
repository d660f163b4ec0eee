"""`progress`: what the Headrace operators of a query did in their last batches. `storage_waits`: what it
waits for right now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headrace.coordinator.progress import BatchProgress
from headrace.errors import QueryError
from headrace.spark.driver import RunningCoordinator, coordinator_for

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
    coordinator = _coordinator()
    return {name: coordinator.progress(query.id, name) for name in coordinator.operators(query.id)}


def storage_waits() -> dict[str, float]:
    """For how long the state hosts have been waiting for storage that throttles or is away.

    Returns
    -------
    dict
        Seconds by location, not older than a second or two; empty when nobody waits. The driver's log says
        the same (logger `headrace.coordinator`).

    Examples
    --------
    >>> hr.storage_waits()  # doctest: +SKIP
    {'s3://bucket/state': 12.5}
    """
    return _coordinator().storage_waits_s()


def _coordinator() -> RunningCoordinator:
    session = SparkSession.getActiveSession()
    if session is None:
        raise QueryError(
            "there is no Spark session in this thread", hint="call it where the query was started"
        )
    return coordinator_for(session)
