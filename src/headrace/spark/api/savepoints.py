"""Savepoints from Python: what `headrace savepoint` does."""

from __future__ import annotations

from typing import Any

from headrace.edit.saved import listed, remove
from headrace.edit.savepoints import WAIT_S, create


def create_savepoint(checkpoint: str, name: str | None = None, within_s: float = WAIT_S) -> str:
    """Keep the last committed batch of a query, so that new queries can start from it.

    The query may run. With asynchronous commits the call waits until the state of that batch is on shared
    storage. Nothing is copied: the files stay as long as the savepoint, or a query from it, names them.

    Parameters
    ----------
    checkpoint
        The query's checkpoint location. Its state must be outside of it (`spark.headrace.state.location`).
    name
        The savepoint's name; ``batch-<number>`` if it is not given.
    within_s
        The longest wait.

    Returns
    -------
    str
        The address for `start`: ``"<checkpoint>#<name>"``.

    Examples
    --------
    >>> import headrace as hr
    >>> spark.conf.set("spark.headrace.state.location", f"{folder}/state")
    >>> counts = hr.stream(events).groupBy("user").agg(n=hr.count())
    >>> writer = counts.writeStream.format("noop").trigger(availableNow=True)
    >>> hr.start(writer.option("checkpointLocation", f"{folder}/kept")).awaitTermination()
    >>> address = hr.create_savepoint(f"{folder}/kept", "before-release")
    >>> writer = writer.option("checkpointLocation", f"{folder}/trial")
    >>> hr.start(writer, from_savepoint=address).awaitTermination()
    >>> [(kept["name"], kept["batch"]) for kept in hr.savepoints(f"{folder}/kept")]
    [('before-release', 1)]
    >>> hr.delete_savepoint(f"{folder}/kept", "before-release")
    >>> spark.conf.unset("spark.headrace.state.location")
    """
    return f"{checkpoint}#{create(checkpoint, name, within_s).name}"


def savepoints(place: str) -> list[dict[str, Any]]:
    """The savepoints of a query by its checkpoint, or of all queries of a state location, oldest first.

    Parameters
    ----------
    place
        A checkpoint location, or a state location where the checkpoint is gone.

    Returns
    -------
    list of dict
        `name`, `batch`, `operators`, `made`, `complete`, `query` and `checkpoint` of each.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.savepoints(checkpoint)
    []
    """
    return listed(place)


def delete_savepoint(place: str, name: str) -> None:
    """Delete a savepoint. Queries that started from it go on.

    Parameters
    ----------
    place
        A checkpoint location, or a state location where the checkpoint is gone.
    name
        The savepoint's name; ``<query>/<name>`` where several queries of a location have one of this name.

    Examples
    --------
    >>> import headrace as hr
    >>> hr.delete_savepoint(checkpoint, "before-release")
    Traceback (most recent call last):
    headrace.errors.QueryError: query ... has no savepoint before-release in ...
    """
    remove(place, name)
