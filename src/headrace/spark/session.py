"""What building an operator sets in the session, because Spark takes the operator for a stateless one."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from headrace.spec import OperatorSpec
from headrace.types import VARIABLE

STATELESS_AQE = "spark.sql.adaptive.streaming.stateless.enabled"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
LARGE = {ARROW_BYTES: "2147483647", ARROW_ROWS: "40000"}  # Arrow batches of rows of a fixed size
PLAIN = {ARROW_BYTES: "67108864", ARROW_ROWS: "10000"}  # Spark's defaults
_OURS = "_headrace_set"  # on the session: the settings that were set here, and not by the user


def prepare(spark: SparkSession, spec: OperatorSpec) -> None:
    """Set what the operator needs; values of the user's own for the size of Arrow batches stay.

    Adaptive execution would change the operator's partitions. Spark measures an Arrow batch after every
    row, a third of the JVM's time, unless its bytes have no bound; and small batches take time of their own
    in every process. A bound in rows is enough where no row has values of any length beside its key.
    """
    spark.conf.set(STATELESS_AQE, "false")
    said, ours = spark.conf.getAll, getattr(spark, _OURS, frozenset[str]())
    free = [name for name in LARGE if name not in said or name in ours]
    if any(field.type in VARIABLE for field in spec.inputs):
        _set(spark, {name: PLAIN[name] for name in free})
        setattr(spark, _OURS, frozenset())  # for good
    else:
        _set(spark, {name: LARGE[name] for name in free})
        setattr(spark, _OURS, frozenset(free))


def _set(spark: SparkSession, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        spark.conf.set(name, value)
