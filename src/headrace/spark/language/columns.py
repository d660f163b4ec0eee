"""Columns as the user wrote them, resolved against the stream before anything runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import QueryError
from headrace.spark.language.plans import projected


@dataclass(frozen=True, eq=False)
class Resolved:
    """One expression: how to compute it, what Spark calls it, and its analysed form in the JVM."""

    column: Column
    name: str
    type: T.DataType
    nullable: bool
    expression: Any

    def same_as(self, other: Resolved) -> bool:
        """Whether both always compute the same value (never true of what is not deterministic)."""
        return bool(self.expression.semanticEquals(other.expression))


def resolve(df: DataFrame, written: str | Column, where: str) -> Resolved:
    """The expression `written` over `df`; `where` names its use in errors."""
    if isinstance(written, str):
        _check_plain_name(df, written, where)
        column = F.col(written)
    elif isinstance(written, Column):
        column = written
    else:
        raise QueryError(f"{where}: {written!r} is neither a column name nor a Column")
    try:
        selected = df.select(column)
    except AnalysisException as error:
        raise _unresolved(df, error, where) from None
    expressions = projected(df, selected)
    if expressions is None or len(expressions) != 1:
        raise QueryError(
            f"{where}: {_shown(written)} is not one value per row",
            hint="Spark's aggregates, generators and F.window do not fit here: "
            "use hr.sum(…) and the like in agg, and hr.tumbling(…) in groupBy",
        )
    field = selected.schema.fields[0]
    return Resolved(column, field.name, field.dataType, field.nullable, expressions[0])


def case_insensitive(df: DataFrame) -> bool:
    return str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() != "true"


def check_distinct(names: Sequence[str], ignore_case: bool) -> None:
    """Refuse output columns of one name."""
    seen: set[str] = set()
    for name in names:
        folded = name.casefold() if ignore_case else name
        if folded in seen:
            raise QueryError(
                f"two output columns would be called {name}",
                hint="give one of them another name, by alias(…)",
            )
        seen.add(folded)


def _check_plain_name(df: DataFrame, name: str, where: str) -> None:
    """Refuse an unknown plain name; names with dots or backticks are left to Spark to resolve."""
    if not re.fullmatch(r"\w+", name):
        return
    fold = str.casefold if case_insensitive(df) else str
    if fold(name) not in {fold(column) for column in df.columns}:
        raise _unknown(name, df.columns, where)


def _unknown(name: str, columns: list[str], where: str) -> QueryError:
    close = difflib.get_close_matches(name, columns, n=3, cutoff=0.6)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return QueryError(
        f"{where}: there is no column {name}", hint=f"{meant}columns are {', '.join(columns)}"
    )


def _unresolved(df: DataFrame, error: AnalysisException, where: str) -> QueryError:
    parameters = error.getMessageParameters() or {}
    if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
        return _unknown(parameters["objectName"].replace("`", ""), df.columns, where)
    return QueryError(f"{where}: {first_line(error)}")


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _shown(written: str | Column) -> str:
    return written if isinstance(written, str) else str(written).removeprefix("Column<'").removesuffix("'>")
