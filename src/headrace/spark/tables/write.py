"""`hr.write_state`: a DataFrame becomes an operator's state, of a stopped query or of one to be started."""

from __future__ import annotations

import json
import uuid
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.beside.local_files import LocalFiles
from headrace.checkpoint.beside.record_log import RecordLog
from headrace.checkpoint.records import OperatorRecord
from headrace.coordinator.operators import state_location
from headrace.edit.plan import refuse_store
from headrace.errors import QueryError
from headrace.plan.options import read_options
from headrace.spark.build.explain import specs_of
from headrace.spark.tables.register import register

Mode = Literal["append", "overwrite"]


def write_state(
    df: DataFrame,
    checkpoint: str,
    operator: str,
    mode: Mode = "append",
    *,
    stream: DataFrame | None = None,
) -> None:
    """Write a DataFrame as the next version of an operator's state.

    Parameters
    ----------
    df : DataFrame
        One row per key, or per key and window; per row where the operator keeps rows. Columns as
        ``spark.read.format("headrace").option("accumulators", "true")`` gives them; a result that is an
        accumulator as it is, such as a count or a sum, may stand under its own name.
    checkpoint : str
        The checkpoint location of the query, which must not run.
    operator : str
        The operator's name.
    mode : {"append", "overwrite"}
        Replace the rows of these keys and keep all others, or replace the whole state.
    stream : DataFrame, optional
        The streaming DataFrame of a query that has never run: the table becomes its initial state.

    Examples
    --------
    >>> import headrace as hr
    >>> totals = hr.stream(events).name("totals").groupBy("user").agg(n=hr.count())
    >>> past = spark.createDataFrame([("ann", 40), ("eve", 2)], "user string, n long")
    >>> hr.write_state(past, f"{folder}/new", "totals", stream=totals)
    """
    if mode not in ("append", "overwrite"):
        raise QueryError(f"mode={mode!r}", hint='write mode="append" or mode="overwrite"')
    spark = df.sparkSession
    register(spark)
    if stream is not None:
        _prepare(spark, checkpoint, operator, stream)
    writer = df.write.format("headrace").option("checkpoint", checkpoint).option("operator", operator)
    writer.mode(mode).save()


def _prepare(spark: SparkSession, checkpoint: str, operator: str, stream: DataFrame) -> None:
    """Make the checkpoint of a new query as Spark would, with the operator's record and no batch."""
    specs = specs_of(stream)
    if operator not in specs:
        known = ", ".join(specs) or "none"
        raise QueryError(f"the stream has no operator {operator}", hint=f"its operators are {known}")
    refuse_store(specs[operator])
    root = checkpoint.removeprefix("file://").removeprefix("file:")
    if "://" in root:
        raise QueryError(
            f"initial state cannot be written to the checkpoint {checkpoint}",
            hint="use a checkpoint location on a file system of this machine",
        )
    files = LocalFiles(f"file:{root}")
    if files.read("metadata") is None:
        files.write("metadata", json.dumps({"id": str(uuid.uuid4())}))
    records = RecordLog(files, operator)
    if records.record is None:
        location = state_location(_location(spark), files.root)
        records.put(OperatorRecord(location, specs[operator], ()), "initial state")


def _location(spark: SparkSession) -> str | None:
    context = spark.sparkContext
    conf = {**dict(context.getConf().getAll()), **spark.conf.getAll}
    return read_options(conf, context.defaultParallelism).location
