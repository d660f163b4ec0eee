"""Columns on the wire: structs flattened into leaves, floats of keys normalised, and put together again.

A leaf that no state type holds, such as an array, is packed into bytes.

`flatten` and `rebuild` walk a type in the same order. A struct that can be null adds a leaf that
records whether it is, so that a null struct and a struct of nulls stay two keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.spark.language.packing import from_wire, to_wire
from headrace.spark.language.types import carried_type, spark_type


@dataclass(frozen=True, eq=False)
class Leaf:
    """One flat column: its expression, its state type, and what the user would call it."""

    column: Column
    type: str
    label: str


def flatten(
    column: Column, kind: T.DataType, nullable: bool, label: str, *, is_key: bool = True
) -> list[Leaf]:
    """The leaves of a column; one without structs is its own leaf. Only a key's floats are normalised."""
    where = f"key {label}" if is_key else f"column {label}"
    if not isinstance(kind, T.StructType):
        name = carried_type(kind, where, is_key=is_key)
        cast = to_wire(column, kind, where, is_key=is_key)
        return [Leaf(_normalised(cast, spark_type(name)) if is_key else cast, name, label)]
    if not kind.fields:
        raise QueryError(f"{where} is a struct without fields")
    leaves = [Leaf(column.isNull(), "bool", f"{label} is null")] if nullable else []
    for field in kind.fields:
        # A field of a null struct is null, whatever the field itself has.
        leaves += flatten(
            column.getField(field.name),
            field.dataType,
            nullable or field.nullable,
            f"{label}.{field.name}",
            is_key=is_key,
        )
    return leaves


def leaf_kinds(kind: T.DataType, nullable: bool) -> list[T.DataType]:
    """Spark's types of the leaves that `flatten` makes of a column."""
    if not isinstance(kind, T.StructType):
        return [kind]
    kinds: list[T.DataType] = [T.BooleanType()] if nullable else []
    for field in kind.fields:
        kinds += leaf_kinds(field.dataType, nullable or field.nullable)
    return kinds


def rebuild(kind: T.DataType, nullable: bool, leaves: Iterator[Column]) -> Column:
    """The column again, from the leaves that `flatten` made of it."""
    if not isinstance(kind, T.StructType):
        return from_wire(next(leaves), kind)
    null = next(leaves) if nullable else None
    fields = [
        rebuild(field.dataType, nullable or field.nullable, leaves).alias(field.name)
        for field in kind.fields
    ]
    built = F.struct(*fields)
    return built if null is None else F.when(~null, built)


def _normalised(column: Column, kind: T.DataType) -> Column:
    """Spark's rule for float keys: all NaNs are one, and -0.0 is 0.0."""
    if not isinstance(kind, T.FloatType | T.DoubleType):
        return column
    zero, nan = F.lit(0.0).cast(kind), F.lit(float("nan")).cast(kind)
    return F.when(column == zero, zero).when(F.isnan(column), nan).otherwise(column)
