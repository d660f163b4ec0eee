"""The operator around the host: rows to the wire in the JVM, results from the wire in the JVM.

stream ─▶ rows (hash, time, leaves, inputs) ─▶ [combine] ─▶ repartitionById ─▶ task ─▶ results ─▶ output
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.spark.combine import combine_task
from headrace.spark.holistic_plan import result_type
from headrace.spark.types import spark_type
from headrace.spec import (
    HASH,
    KEYLESS_HASH,
    TIME,
    WINDOW_END,
    WINDOW_START,
    OperatorSpec,
    input_columns,
    join_columns,
    result_columns,
)

GROUP_BITS = 10  # a partition is a range of the hash's 1,024 groups


@dataclass(frozen=True, eq=False)
class Blueprint:
    """An operator that is ready to be put into the plan."""

    spec: OperatorSpec
    keys: Sequence[Column]  # leaves, in the order of `spec.keys`
    inputs: Sequence[Column]  # in the order of `spec.inputs`
    time: Column | None
    output: Sequence[Column]  # over the wire's result columns
    watermark_nodes: tuple[str, ...]


def wire_rows(df: DataFrame, blueprint: Blueprint) -> DataFrame:
    """Rows of `input_schema`, each in its partition."""
    spec = blueprint.spec
    if spec.window and blueprint.time is not None:
        df = df.where(blueprint.time.isNotNull())  # as Spark's window does
    columns = [blueprint.time.alias(TIME)] if blueprint.time is not None else []
    columns += [column.alias(f.name) for column, f in zip(blueprint.keys, spec.keys, strict=True)]
    columns += [column.alias(f.name) for column, f in zip(blueprint.inputs, spec.inputs, strict=True)]
    names = [TIME] * spec.timed + [field.name for field in (*spec.keys, *spec.inputs)]
    rows = df.select(*columns)
    if spec.keys or not (spec.combined and names):  # else it is the same for all, and combining adds it
        rows = rows.select(hash_of(spec).alias(HASH), *names)
    if spec.combined:
        rows = rows.mapInArrow(combine_task(spec), input_struct(spec))
    return placed(rows, spec)


def hash_of(spec: OperatorSpec) -> Column:
    """The hash of a row's key, from the wire's leaves."""
    leaves = [F.col(field.name) for field in spec.keys]
    return F.xxhash64(*leaves) if leaves else F.lit(KEYLESS_HASH).cast("bigint")


def placed(rows: DataFrame, spec: OperatorSpec) -> DataFrame:
    """The rows, each in the partition that owns its hash."""
    return rows.repartitionById(spec.partitions, partition_of(F.col(HASH), spec.partitions))


def partition_of(hashed: Column, partitions: int) -> Column:
    """The partition that owns a hash: its group, scaled to the number of partitions."""
    group = F.shiftrightunsigned(hashed, 64 - GROUP_BITS)
    return F.shiftright(group * F.lit(partitions), GROUP_BITS).cast("int")


def input_struct(spec: OperatorSpec) -> T.StructType:
    """What a combining stage returns."""
    return T.StructType([T.StructField(name, spark_type(kind)) for name, kind in input_columns(spec)])


def result_struct(spec: OperatorSpec) -> T.StructType:
    """What the task returns. Fresh fields: an input's watermark metadata must not reach later operators.

    What is never null says so: Spark then does not ask, row by row.
    """
    fields = [(field.name, field.type) for field in spec.keys]
    never_null = set()
    if spec.window:
        fields += [(WINDOW_START, "timestamp"), (WINDOW_END, "timestamp")]
        never_null |= {WINDOW_START, WINDOW_END}
    if spec.join:
        fields += join_columns(spec.join)
    for index, accumulator in enumerate(spec.accumulators):
        columns = result_columns(index, accumulator)
        fields += columns
        never_null |= {name for name, _ in columns if accumulator.kind == "count"}
    struct = T.StructType(
        [T.StructField(name, spark_type(kind), name not in never_null) for name, kind in fields]
    )
    for index, holistic in enumerate(spec.holistics):
        struct.add(f"h{index}", result_type(holistic))
    return struct
