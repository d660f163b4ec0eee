"""`start`: a query whose commits run behind its batches, once its checkpoint and state are together.

The mode is a setting of the query's own: Spark copies the session's settings when a query starts, so it is
set for that moment only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.reconcile import replay_due, replayed
from headrace.errors import QueryError
from headrace.options import PREFIX, CommitMode, Options
from headrace.spark.checkpoint_files import HadoopFiles, LocalFiles
from headrace.spark.driver import coordinator_for
from headrace.spark.operator import session_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

log = logging.getLogger("headrace.start")

_SETTING = f"{PREFIX}commit"


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query with asynchronous commits.

    A batch then waits for its state to be in the local log of its machine, and for the batch before it to
    be on shared storage; sealing, compaction and the copy run behind the next batch. Where a machine was
    lost with its disk in between, the last batch is replayed first, for its state only: its sink has its
    rows already.

    Parameters
    ----------
    writer
        What `df.writeStream` gave, with its sink, `checkpointLocation` and trigger.

    Returns
    -------
    StreamingQuery
        As `writer.start()` returns it.

    Notes
    -----
    `spark.headrace.commit`, where it is set, says the mode instead (`sync`, `upload` or `async`).

    Examples
    --------
    >>> query = hr.start(
    ...     counts.writeStream.format("parquet").option("path", out).option("checkpointLocation", ckpt)
    ... )  # doctest: +SKIP
    """
    spark: SparkSession | None = getattr(writer, "_spark", None)
    if spark is None or getattr(writer, "_jwrite", None) is None:
        raise QueryError(
            "hr.start takes the writer of a classic Spark session",
            hint="say hr.start(df.writeStream.format(…).option(…)), without .start()",
        )
    options = session_options(spark)
    checkpoint = checkpoint_of(spark, writer)
    if checkpoint is not None:
        files = checkpoint_files(spark, checkpoint)
        reconcile(spark, files, options)
        if replay_due(files) is not None:
            replay(spark, writer, checkpoint)
            replayed(files)
    with _committing(spark, "async", always=False):
        return writer.start()


def reconcile(spark: SparkSession, files: LocalFiles | HadoopFiles, options: Options) -> None:
    """Bring a checkpoint and its state together before the query starts; nothing is done while it runs."""
    metadata = files.read("metadata")
    if metadata is None or _runs(spark, str(json.loads(metadata)["id"])):
        return
    from headrace.coordinator.recover import Recovery, told  # it seals, and so loads the kernels

    elsewhere = None if coordinator_for(spark).local_master else _on_executors(spark, options.local)
    found = Recovery(files, Path(options.local), redo_elsewhere=elsewhere).repair()
    for line in found.lines():
        log.info("%s: %s", files.root, line)
    if found.decision.action == "withdraw":
        log.warning("%s: %s", files.root, told(found.decision))


def replay(spark: SparkSession, writer: DataStreamWriter, checkpoint: str) -> None:
    """Run the one batch that Spark has planned and not committed, and give its rows to nobody.

    The sink itself would not do: Spark's file sink and Delta do not even run a batch that they have seen.
    """
    again: Any = writer._df.writeStream.format("noop").option("checkpointLocation", checkpoint)
    again._jwrite.outputMode(_field(writer, "outputMode"))
    with _committing(spark, "sync", always=True):
        query = again.trigger(once=True).start()
    query.awaitTermination()


def checkpoint_of(spark: SparkSession, writer: DataStreamWriter) -> str | None:
    """Where the query's checkpoint will be; None when Spark makes up a new place for it."""
    said = _options_of(writer)
    if "checkpointlocation" in said:
        return said["checkpointlocation"]
    root = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    name = said.get("queryname")
    return f"{root}/{name}" if root and name else None


def _options_of(writer: Any) -> dict[str, str]:
    """The writer's options, by lower-case name. Spark has no public way to ask for them."""
    pairs, found = _field(writer, "extraOptions").iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1()).lower()] = str(pair._2())
    return found


def _field(writer: Any, name: str) -> Any:
    field = writer._jwrite.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(writer._jwrite)


def checkpoint_files(spark: SparkSession, checkpoint: str) -> LocalFiles | HadoopFiles:
    """The files of a checkpoint, wherever Spark finds it."""
    context: Any = spark.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    path = context._jvm.org.apache.hadoop.fs.Path(checkpoint)
    root = str(path.getFileSystem(configuration).makeQualified(path).toString())
    if root.startswith("file:"):
        return LocalFiles(root)
    return HadoopFiles(root, context._gateway, configuration)


def _runs(spark: Any, query: str) -> bool:
    key = spark.sparkContext._jvm.java.util.UUID.fromString(query)
    return spark._jsparkSession.sharedState().activeStreamingQueries().get(key) is not None


def _on_executors(spark: SparkSession, local: str) -> Callable[[Any, int], None]:
    """Finishes what is in the logs of the executors' machines; more tasks than cores reach them all."""
    context = spark.sparkContext

    def everywhere(state: Any, version: int) -> None:
        tasks = max(2, 4 * context.defaultParallelism)
        context.parallelize(range(tasks), tasks).foreach(lambda _: _redo_here(local, state, version))

    return everywhere


def _redo_here(local: str, state: Any, version: int) -> None:
    from headrace.host.redo import redo

    redo(Path(local), state, version)


@contextmanager
def _committing(spark: SparkSession, mode: CommitMode, *, always: bool) -> Iterator[None]:
    """Queries that start meanwhile commit in this mode; a setting goes first, unless `always`."""
    context: Any = spark.sparkContext
    with context._lock:  # the session's settings are everybody's
        said = spark.conf.get(_SETTING, None)
        if said is None or always:
            spark.conf.set(_SETTING, mode)
        try:
            yield
        finally:
            if said is None:
                spark.conf.unset(_SETTING)
            else:
                spark.conf.set(_SETTING, said)
