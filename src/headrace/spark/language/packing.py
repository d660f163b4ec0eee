"""Values of any type as bytes, and back: expressions of the JVM operator's jar.

The bytes are those of Spark's `UnsafeRow` with one column, which Spark's own state stores keep as well. So
a round trip is exact for every type, and a key's bytes are what Spark's own aggregates compare.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.types import is_packed
from headrace.spark.bridge.load import LoadedBridge, bridge_for
from headrace.spark.language.types import carried_type, spark_type


def to_wire(column: Column, kind: T.DataType, where: str, *, is_key: bool = False) -> Column:
    """The column in the Spark type that its state type has on the wire."""
    state = carried_type(kind, where, is_key=is_key)
    if is_packed(state):
        return type(column)(_bridge(where).call("pack", column._jc, is_key))
    wire = spark_type(state)
    return column if kind == wire else column.cast(wire)


def from_wire(column: Column, kind: T.DataType) -> Column:
    """The column of type `kind` again."""
    state = carried_type(kind, "a column")
    if is_packed(state):
        return type(column)(_bridge("a column").call("unpack", column._jc, kind.json()))
    return column if kind == spark_type(state) else column.cast(kind)


def _bridge(where: str) -> LoadedBridge:
    bridge = bridge_for(SparkSession.active(), "auto")
    if bridge is None:
        raise QueryError(
            f"{where} is packed by the JVM operator's jar, which this session cannot load",
            hint="hr.explain(df) has the reason; or carry parts of the value, such as F.to_json(…)",
        )
    return bridge
