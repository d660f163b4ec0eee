"""The operator around the host: rows to the wire in the JVM, results from the wire in the JVM.

stream ─▶ rows (hash, time, leaves, inputs) ─▶ [combine] ─▶ repartitionById ─▶ task ─▶ results ─▶ output
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.plan.partitions.groups import GROUP_BITS
from headrace.plan.spec import (
    HASH,
    KEYLESS_HASH,
    TIME,
    OperatorSpec,
    OutputColumn,
    input_columns,
    output_columns,
)
from headrace.spark.build.combine import combine_task
from headrace.spark.language.types import spark_type


@dataclass(frozen=True, eq=False)
class StreamRows:
    """Rows of one stream, and the expressions that bring them to the wire."""

    df: DataFrame
    keys: Sequence[Column]  # leaves, in the order of `spec.keys`
    inputs: Sequence[Column]  # in the order of `spec.inputs`
    time: Column | None

    def __call__(self, spec: OperatorSpec) -> DataFrame:
        """Rows of `input_schema`, each in its partition."""
        df = self.df
        if spec.window and self.time is not None:
            df = df.where(self.time.isNotNull())  # as Spark's window does
        columns = [self.time.alias(TIME)] if self.time is not None else []
        columns += [column.alias(f.name) for column, f in zip(self.keys, spec.keys, strict=True)]
        columns += [column.alias(f.name) for column, f in zip(self.inputs, spec.inputs, strict=True)]
        names = [TIME] * spec.timed + [field.name for field in (*spec.keys, *spec.inputs)]
        rows = df.select(*columns)
        combined = spec.work.combined
        if spec.keys or not (combined and names):  # without keys the combining stage adds the hash
            rows = rows.select(hash_of(spec).alias(HASH), *names)
        if combined:
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
    """The task's results. Fresh fields: watermark metadata of an input must not reach later operators.

    Columns that are never null are declared so; Spark then skips a check per row.
    """
    return T.StructType([_field(column) for column in output_columns(spec)])


def _field(column: OutputColumn) -> T.StructField:
    of_one = spark_type(column.type)
    return T.StructField(column.name, T.ArrayType(of_one) if column.listed else of_one, column.nullable)
