"""Records how results are made of wire columns, for readers of state that have no query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import types as T

from headrace.plan.shown import ShownColumn
from headrace.plan.spec import Field
from headrace.spark.language.columns import Resolved


def shown_keys(
    keys: Iterable[tuple[str, T.DataType, bool]], fields: Sequence[Field]
) -> tuple[ShownColumn, ...]:
    """The keys, given as (name, type, nullable), over the leaves that `keys.flatten` made of them."""
    leaves = iter(fields)
    return tuple(_shown(name, kind, nullable, leaves) for name, kind, nullable in keys)


def typed(keys: Iterable[Resolved | None]) -> list[tuple[str, T.DataType, bool]]:
    """Name, type and nullability of keys; the window is none of them."""
    return [(key.name, key.type, key.nullable) for key in keys if key is not None]


def _shown(name: str, kind: T.DataType, nullable: bool, leaves: Iterator[Field]) -> ShownColumn:
    if not isinstance(kind, T.StructType):
        leaf = next(leaves)
        return ShownColumn(name, "column", leaf.type, (leaf.name,))
    null = (next(leaves).name,) if nullable else ()
    fields = tuple(
        _shown(field.name, field.dataType, nullable or field.nullable, leaves) for field in kind.fields
    )
    return ShownColumn(name, "struct", "", null, fields)
