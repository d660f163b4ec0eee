"""Streams of changes: a kind column whose metadata names the columns that identify a row.

The metadata travels with the column through filters and projections. So an operator above sees that its
input is a changelog, and refuses to go on where the column was dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.plan.columns import CHANGE_KINDS, INSERT, KIND, UPDATE_AFTER
from headrace.spark.language.plans import analysed, node_kind, operator_of

KIND_COLUMN = "_kind"
METADATA = "headrace.changelog"  # of the kind column: names of the columns that identify a row


@dataclass(frozen=True)
class Changelog:
    """The kind column of a stream, and the columns that identify a row; none: the whole row does."""

    kind: str
    keys: tuple[str, ...]

    @property
    def column(self) -> Column:
        return F.col("`" + self.kind.replace("`", "``") + "`")

    @property
    def is_new(self) -> Column:
        """Whether a row is there after the change."""
        return self.column.isin(CHANGE_KINDS[INSERT], CHANGE_KINDS[UPDATE_AFTER])


def kind_column() -> Column:
    """The user's kind column, from the one on the wire."""
    names = F.array(*(F.lit(name) for name in CHANGE_KINDS))
    return F.get(names, F.col(KIND).cast("int")).alias(KIND_COLUMN)


def marked(df: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The result of an operator, with its kind column known as such."""
    return df.withMetadata(KIND_COLUMN, {METADATA: list(keys)})


def changelog_of(df: DataFrame) -> Changelog | None:
    """The changelog that a stream is; None for a stream of plain rows."""
    kinds = [field for field in df.schema.fields if METADATA in (field.metadata or {})]
    if len(kinds) > 1:
        raise QueryError(
            f"the stream has several kind columns: {', '.join(field.name for field in kinds)}",
            hint="keep one of them: the others are copies",
        )
    if not kinds:
        _refuse_dropped(df)
        return None
    _refuse_chance(df)
    return Changelog(kinds[0].name, tuple(kinds[0].metadata[METADATA]))


def _refuse_dropped(df: DataFrame) -> None:
    for node in _above_operators(analysed(df)):
        if operator_of(node) is not None:
            names = [str(one.name()) for one in _items(node.output())]
            if KIND in names:
                raise QueryError(
                    "the kind column of a changelog was dropped, so deletes would count as inserts",
                    hint=f'keep the column {KIND_COLUMN} in every select, or write emit="changes" below',
                )


def _refuse_chance(df: DataFrame) -> None:
    """A retraction must repeat the row that it takes back."""
    for node in _above_operators(analysed(df)):
        if not all(one.deterministic() for one in _items(node.expressions())):
            raise QueryError(
                "an expression over a changelog is not deterministic: a retraction would miss its row",
                hint="compute such columns below the operator that gives the changelog",
            )


def _above_operators(plan: Any) -> list[Any]:
    """The nodes from the top down to the first operators, those included."""
    if operator_of(plan) is not None:
        return [plan]
    if node_kind(plan) == "MapInArrow":
        return []
    return [plan, *(node for child in _items(plan.children()) for node in _above_operators(child))]


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]
