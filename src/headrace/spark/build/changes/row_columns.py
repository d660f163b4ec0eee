"""Whole rows of a stream: their columns as leaves on the wire, and as columns again."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.plan.spec import Field
from headrace.spark.language.columns import resolve
from headrace.spark.language.keys import flatten, rebuild


def quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def row_columns(
    df: DataFrame, names: Iterable[str] | None = None
) -> tuple[list[Field], list[Column], list[Column]]:
    """Fields, leaves and outputs of the named columns; of all if there are none."""
    fields: list[Field] = []
    columns: list[Column] = []
    outputs: list[Column] = []
    for name in df.columns if names is None else names:
        resolved = resolve(df, quoted(name), f"column {name}")
        leaves = flatten(resolved.column, resolved.type, resolved.nullable, name, is_key=False)
        wires = [f"v{len(fields) + at}" for at in range(len(leaves))]
        fields += [Field(wire, leaf.type, leaf.label) for wire, leaf in zip(wires, leaves, strict=True)]
        columns += [leaf.column for leaf in leaves]
        wired = iter([F.col(wire) for wire in wires])
        outputs.append(rebuild(resolved.type, resolved.nullable, wired).alias(name))
    return fields, columns, outputs
