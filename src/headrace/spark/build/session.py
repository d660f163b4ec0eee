"""Session settings of an operator; Spark plans it as a stateless one and would choose badly."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

STATELESS_AQE = "spark.sql.adaptive.streaming.stateless.enabled"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
LARGE = {ARROW_BYTES: "2147483647", ARROW_ROWS: "40000"}  # Arrow batches of rows of a fixed size
PLAIN = {ARROW_BYTES: "67108864", ARROW_ROWS: "10000"}  # Spark's defaults
_OURS = "_headrace_set"  # on the session: the settings that `prepare` set, not the user


def prepare(spark: SparkSession, *, is_sized: bool) -> None:
    """Sets what the operator needs; the user's own sizes of Arrow batches stay.

    Adaptive execution would change the operator's partitions. Spark measures an Arrow batch after every
    row, which takes a third of the JVM's time, unless its bytes are unbounded. Small batches cost time in
    every process. A bound in rows suffices if no row has strings or binary values beside its key.
    """
    choose_python(spark.sparkContext)
    spark.conf.set(STATELESS_AQE, "false")
    settings, ours = spark.conf.getAll, getattr(spark, _OURS, frozenset[str]())
    free = [name for name in LARGE if name not in settings or name in ours]
    if not is_sized:
        _set(spark, {name: PLAIN[name] for name in free})
        setattr(spark, _OURS, frozenset())  # for good
    else:
        _set(spark, {name: LARGE[name] for name in free})
        setattr(spark, _OURS, frozenset(free))


def choose_python(context: Any) -> None:
    """Workers and host of a local session run in the driver's own environment, unless the user named one.

    Spark would take the first `python3` of the path, which lacks Headrace if a virtual environment is used
    without being activated.
    """
    is_named = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if (
        context.master.startswith("local")
        and not context.master.startswith("local-cluster")
        and not is_named
    ):
        context.pythonExec = sys.executable


def _set(spark: SparkSession, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        spark.conf.set(name, value)
