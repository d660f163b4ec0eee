"""What building an operator sets in the session, because Spark takes the operator for a stateless one."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headrace.spec import OperatorSpec
from headrace.types import VARIABLE

STATELESS_AQE = "spark.sql.adaptive.streaming.stateless.enabled"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
UNBOUNDED, BOUNDED = "2147483647", "67108864"  # the second is Spark's default
_OURS = "_headrace_unbounded"  # on the session, where the first was set here


def prepare(spark: SparkSession, spec: OperatorSpec) -> None:
    """Set what the operator needs; a value of the user's own for the size of Arrow batches stays.

    Adaptive execution would change the operator's partitions. And Spark measures an Arrow batch after every
    row, a third of the JVM's time, unless its bytes have no bound. The number of its rows has one still:
    that is enough where no row has values of any length beside its key.
    """
    spark.conf.set(STATELESS_AQE, "false")
    said = spark.conf.getAll.get(ARROW_BYTES)
    if said is not None and not getattr(spark, _OURS, False):
        return
    long_values = any(field.type in VARIABLE for field in spec.inputs)
    if said is None or long_values:
        spark.conf.set(ARROW_BYTES, BOUNDED if long_values else UNBOUNDED)
        setattr(spark, _OURS, not long_values)
