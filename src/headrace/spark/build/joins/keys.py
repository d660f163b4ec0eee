"""The keys of a join: what each stream calls them, the type in which they meet, and their leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.plan.spec import LEFT, RIGHT, Field
from headrace.spark.language.columns import Resolved, resolve
from headrace.spark.language.keys import flatten, rebuild

On = str | Sequence[str | tuple[str | Column, str | Column]]


@dataclass(frozen=True, eq=False)
class Key:
    """A key of the join: the expression of each side, in the type in which they are compared."""

    name: str
    written: tuple[Resolved, Resolved]
    sides: tuple[Column, Column]
    type: T.DataType
    nullable: bool


def keys_of(left: DataFrame, right: DataFrame, on: On) -> list[Key]:
    """The keys as the user wrote them, resolved against both streams."""
    pairs = _pairs(on)
    if not pairs:
        raise QueryError("a join needs a key", hint='write on="<column>", or on=[("<left>", "<right>")]')
    return [_key(left, right, pair) for pair in pairs]


def shared_names(keys: Sequence[Key]) -> list[str]:
    """Names that mean a key in both streams."""
    return [key.name for key in keys if key.written[LEFT].name == key.written[RIGHT].name]


def _pairs(on: Any) -> list[tuple[Any, Any]]:
    if isinstance(on, str):
        return [(on, on)]
    if not isinstance(on, list):
        raise QueryError(
            f"on={on!r} does not name the keys of a join",
            hint='write on="k", on=["k1", "k2"], or on=[("<left>", "<right>")] where the names differ',
        )
    return [_pair(one) for one in on]


def _pair(one: Any) -> tuple[Any, Any]:
    if isinstance(one, str):
        return one, one
    if isinstance(one, tuple) and len(one) == 2:
        return one[0], one[1]
    raise QueryError(f"{one!r} in on is neither a name nor a pair", hint='write ("<left>", "<right>")')


def _key(left_df: DataFrame, right_df: DataFrame, pair: tuple[Any, Any]) -> Key:
    left = resolve(left_df, pair[LEFT], "on, left stream")
    right = resolve(right_df, pair[RIGHT], "on, right stream")
    kind = _common_type(left_df, left, right)
    sides = tuple(one.column if one.type == kind else one.column.cast(kind) for one in (left, right))
    return Key(left.name, (left, right), (sides[0], sides[1]), kind, left.nullable or right.nullable)


def _common_type(df: DataFrame, left: Resolved, right: Resolved) -> T.DataType:
    """The type in which Spark would compare the two; strings are compared with strings only."""
    texts = [isinstance(one.type, T.StringType) for one in (left, right)]
    if texts[LEFT] == texts[RIGHT]:
        nulls = [F.lit(None).cast(one.type) for one in (left, right)]
        try:
            return df.select(F.coalesce(*nulls)).schema.fields[0].dataType
        except AnalysisException:
            pass
    raise QueryError(
        f"key {left.name} is {left.type.simpleString()} on the left and {right.name} "
        f"{right.type.simpleString()} on the right",
        hint="cast one of them to the type of the other",
    )


def wire_keys(keys: Sequence[Key]) -> tuple[list[Field], tuple[list[Column], list[Column]], list[Column]]:
    """Fields of all keys, their leaves on each side, and the output columns."""
    fields: list[Field] = []
    leaves: tuple[list[Column], list[Column]] = ([], [])
    shown = []
    for key in keys:
        start = len(fields)
        for side in (LEFT, RIGHT):
            flat = flatten(key.sides[side], key.type, key.nullable, key.name)
            leaves[side].extend(leaf.column for leaf in flat)
        fields += [Field(f"k{start + n}", leaf.type, leaf.label) for n, leaf in enumerate(flat)]
        named = iter([F.col(field.name) for field in fields[start:]])
        shown.append(rebuild(key.type, key.nullable, named).alias(key.name))
    return fields, leaves, shown
