"""`start`: a query whose commits run behind its batches; reconciles its checkpoint and state first.

The commit mode is a setting of the query. Spark copies the Spark session's settings when a query starts, so
the mode is set for that moment only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import RecordLog, stored_record, stored_records
from headrace.checkpoint.operator_record import refuse_changes
from headrace.coordinator.belonging import Places, followed, refuse_copied
from headrace.coordinator.operators import state_location
from headrace.edit.from_savepoint import begin_branch, begun_from, resolve
from headrace.errors import QueryError, SettingError, StateMissing
from headrace.plan.options import PREFIX, CommitMode, HostPer, Options, local_on
from headrace.plan.spec import OperatorSpec
from headrace.recovery.reconcile import replay_due, settle_replay
from headrace.spark.build.explain import specs_below
from headrace.spark.build.recipe import session_options
from headrace.spark.driver.checkpoint_files import HadoopFiles
from headrace.spark.driver.driver import coordinator_for
from headrace.spark.driver.everywhere import on_every_executor
from headrace.spark.task.machine import machine_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

log = logging.getLogger("headrace.start")

_SETTING = f"{PREFIX}commit"


def start(writer: DataStreamWriter, from_savepoint: str | None = None) -> StreamingQuery:
    """Start a query with asynchronous commits.

    A batch then waits until its state is in the local log of its machine, and the batch before it is on
    shared storage. Sealing, upload and compaction run behind the next batch. If a machine was lost with its
    disk in between, the last batch is replayed first, for its state only: its sink has its rows already.

    Parameters
    ----------
    writer
        The writer of `df.writeStream`, with its sink, `checkpointLocation` and trigger.
    from_savepoint
        Where a new query begins: ``"<checkpoint>#<name>"``, or ``"<state location>#<name>"`` where the
        original's checkpoint is gone. The new query has a checkpoint and a query id of its own, and copies
        no state. If the checkpoint is that of this branch already, the query goes on.

    Returns
    -------
    StreamingQuery
        The result of `writer.start()`.

    Notes
    -----
    `spark.headrace.commit`, if it is set, selects another mode (`sync`, `upload` or `async`).

    Examples
    --------
    >>> import headrace as hr
    >>> counts = hr.stream(events).groupBy("user").agg(n=hr.count())
    >>> writer = counts.writeStream.format("parquet").option("path", f"{folder}/out")
    >>> writer = writer.option("checkpointLocation", f"{folder}/counts").trigger(availableNow=True)
    >>> hr.start(writer).awaitTermination()
    >>> spark.read.parquet(f"{folder}/out").orderBy("user", "n").collect()
    [Row(user='ann', n=2), Row(user='ann', n=3), Row(user='bob', n=1), Row(user='eve', n=1)]
    """
    spark: SparkSession | None = getattr(writer, "_spark", None)
    if spark is None or getattr(writer, "_jwrite", None) is None:
        raise QueryError(
            "hr.start takes the writer of a classic Spark session",
            hint="write hr.start(df.writeStream.format(…).option(…)), without .start()",
        )
    options = session_options(spark)
    checkpoint = checkpoint_of(spark, writer)
    specs = specs_below(writer._df)
    if from_savepoint is not None:
        begin_at(spark, checkpoint, from_savepoint, specs, options)
    if checkpoint is not None:
        files = checkpoint_files(spark, checkpoint)
        refuse_changed(files, specs)
        if reconcile(spark, files, options):
            replay(spark, writer, files, checkpoint)
    with _committing(spark, "async", always=False):
        return writer.start()


def begin_at(
    spark: SparkSession,
    checkpoint: str | None,
    address: str,
    specs: Sequence[OperatorSpec],
    options: Options,
) -> None:
    """Makes the checkpoint of a branch, unless it is there; all that would stop the query comes first."""
    if checkpoint is None:
        raise QueryError(
            "a query from a savepoint needs a checkpoint of its own",
            hint='write .option("checkpointLocation", …) with a new folder',
        )
    files, places = checkpoint_files(spark, checkpoint), coordinator_for(spark).places
    if begun_from(files, address):
        return
    blobs, savepoint = resolve(address, lambda location: places.blobs_at(location, create=False))
    location = state_location(options.location, files.root)
    if location != savepoint.location:
        raise SettingError(
            f"the savepoint {address} is in {savepoint.location}, and the query's state would be in "
            f"{location}",
            hint=f"set spark.headrace.state.location to {savepoint.location}",
        )
    saved = {one.record.spec.name: one.record.spec for one in savepoint.operators}
    for spec in specs:
        if spec.name in saved:
            refuse_changes(saved[spec.name], spec)
    query = begin_branch(files, blobs, savepoint, address)
    log.info("%s: the query %s goes on from batch %s of %s", files.root, query, savepoint.batch, address)


def refuse_changed(files: LocalFiles | HadoopFiles, specs: Sequence[OperatorSpec]) -> None:
    """Raises `OperatorChanged` where an operator differs from the one that wrote the checkpoint's state."""
    for spec in specs:
        record = stored_record(files, spec.name)
        if record is not None:
            refuse_changes(record.spec, spec)


def reconcile(spark: SparkSession, files: LocalFiles | HadoopFiles, options: Options) -> bool:
    """Reconciles a checkpoint and its state before the query starts; False while the query runs."""
    metadata = files.read("metadata")
    query = "" if metadata is None else str(json.loads(metadata)["id"])
    if not query or _runs(spark, query):
        return False
    coordinator = coordinator_for(spark)
    settle_moved(coordinator.places, files, query, options)
    coordinator.release_lease(query)
    from headrace.recovery.recover import Recovery, withdrawal_text  # sealing loads the kernels

    elsewhere = None if coordinator.local_master else _on_executors(spark, options)
    local = Path(local_on(options.local, machine_name("machine")))
    recovered = Recovery(files, local, redo_elsewhere=elsewhere).repair()
    for line in recovered.lines():
        log.info("%s: %s", files.root, line)
    if recovered.decision.action == "withdraw":
        log.warning("%s: %s", files.root, withdrawal_text(recovered.decision))
    return True


def settle_moved(places: Places, files: LocalFiles | HadoopFiles, query: str, options: Options) -> None:
    """Records state that has moved to another location; raises for a copied checkpoint."""
    for name, record in stored_records(files).items():
        moved = followed(places, query, record, state_location(options.location, files.root))
        refuse_copied(places, query, files.root, moved.location)
        if moved != record:
            RecordLog(files, name).put(moved, "moved")


def replay(
    spark: SparkSession, writer: DataStreamWriter, files: LocalFiles | HadoopFiles, checkpoint: str
) -> None:
    """Replays a withdrawn batch for its state, if one is due, and puts the plans after it back.

    The query's own sink is no substitute: Spark's file sink and Delta do not run a batch that they have
    seen.
    """
    due = replay_due(files)
    if due is not None:
        again: Any = writer._df.writeStream.format("noop").option("checkpointLocation", checkpoint)
        again._jwrite.outputMode(_field(writer, "outputMode"))
        with _committing(spark, "sync", always=True):
            query = again.trigger(once=True).start()
        query.awaitTermination()
        refuse_other_batch(files.root, due, [entry["batchId"] for entry in query.recentProgress])
    for entry in settle_replay(files):
        log.info("%s: %s is back", files.root, entry)


def refuse_other_batch(root: str, due: int, ran: Sequence[int]) -> None:
    """Raises where the replay ran another batch: its rows have reached no sink."""
    if list(ran) != [due]:
        raise StateMissing(
            f"batch {due} of the query at {root} was to be replayed for its state, and Spark ran "
            f"{', '.join(map(str, ran)) or 'none'}",
            hint="another start works on this checkpoint: stop both, and bring checkpoint and state back "
            "from one backup",
        )


def checkpoint_of(spark: SparkSession, writer: DataStreamWriter) -> str | None:
    """The query's checkpoint; None when Spark chooses a new one."""
    options = _options_of(writer)
    if "checkpointlocation" in options:
        return options["checkpointlocation"]
    root = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    name = options.get("queryname")
    return f"{root}/{name}" if root and name else None


def _options_of(writer: Any) -> dict[str, str]:
    """The writer's options, by lower-case name. Spark has no public way to read them."""
    pairs, options = _field(writer, "extraOptions").iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        options[str(pair._1()).lower()] = str(pair._2())
    return options


def _field(writer: Any, name: str) -> Any:
    field = writer._jwrite.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(writer._jwrite)


def checkpoint_files(spark: SparkSession, checkpoint: str) -> LocalFiles | HadoopFiles:
    """The files of a checkpoint, on any file system that Spark supports."""
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


def _on_executors(spark: SparkSession, options: Options) -> Callable[[Any, int], None]:
    """Finishes the commits in the logs of the executors' machines."""
    local, per = options.local, options.host_per

    def everywhere(state: Any, version: int) -> None:
        on_every_executor(spark.sparkContext, lambda: _redo_here(local, per, state, version))

    return everywhere


def _redo_here(local: str, per: HostPer, state: Any, version: int) -> None:
    from headrace.recovery.redo import redo

    redo(Path(local_on(local, machine_name(per))), state, version)


@contextmanager
def _committing(spark: SparkSession, mode: CommitMode, *, always: bool) -> Iterator[None]:
    """Sets the commit mode of queries that start inside the block; an explicit setting wins, unless
    `always`.
    """
    context: Any = spark.sparkContext
    with context._lock:  # all threads share the Spark session's settings
        previous = spark.conf.get(_SETTING, None)
        if previous is None or always:
            spark.conf.set(_SETTING, mode)
        try:
            yield
        finally:
            if previous is None:
                spark.conf.unset(_SETTING)
            else:
                spark.conf.set(_SETTING, previous)
