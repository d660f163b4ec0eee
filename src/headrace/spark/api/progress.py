"""`progress`: what the Headrace operators of a query did in their last batches. `storage_waits`: what it
waits for right now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headrace.errors import QueryError
from headrace.monitor.history import read_history
from headrace.monitor.picture.run import Progress, progress_of
from headrace.spark.driver.driver import RunningCoordinator, coordinator_for

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def progress(query: StreamingQuery | str) -> Progress:
    """The last batches of every Headrace operator in a query, oldest first.

    Parameters
    ----------
    query : StreamingQuery or str
        What `writeStream…start()` returned: the last hundred batches of its current run. Or the checkpoint
        location of any query: its history on disk, which stays after the query has stopped
        (`spark.headrace.history`).

    Returns
    -------
    Progress
        A dictionary by operator name. Each batch is a `BatchProgress`: rows in and out, late rows, keys,
        bytes in memory and on storage, and how long its phases took at the slowest partition.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.progress(query)["totals"][-1].rows_in
    2
    >>> hr.progress(checkpoint).toPandas()[["operator", "rows_in", "rows_out"]].values.tolist()
    [['totals', 3, 2], ['totals', 2, 2]]
    """
    if isinstance(query, str):
        session = SparkSession.getActiveSession()
        if session is not None:
            coordinator_for(session).flush_history()
        return progress_of(read_history(query))
    coordinator = _coordinator()
    return Progress(
        {name: coordinator.progress(query.id, name) for name in coordinator.operators(query.id)}
    )


def storage_waits() -> dict[str, float]:
    """For how long the state hosts have been waiting for storage that throttles or is away.

    Returns
    -------
    dict
        Seconds by location, not older than a second or two; empty when nobody waits. The driver's log has
        the same (logger `headrace.coordinator`).

    Examples
    --------
    >>> import headrace as hr
    >>> hr.storage_waits()  # {'s3://bucket/state': 12.5} where storage has been away for so long
    {}
    """
    return _coordinator().storage_waits_s()


def _coordinator() -> RunningCoordinator:
    session = SparkSession.getActiveSession()
    if session is None:
        raise QueryError(
            "there is no Spark session in this thread", hint="call it where the query was started"
        )
    return coordinator_for(session)
