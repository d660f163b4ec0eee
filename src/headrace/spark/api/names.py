"""Names in a query: those of operators, and the event time column of a stream."""

from __future__ import annotations

from pyspark.sql import DataFrame

from headrace.errors import QueryError
from headrace.spark.language.plans import WATERMARK_KEY

NAME_LENGTH_MAX = 100


def checked_name(name: str) -> str:
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or len(name) > NAME_LENGTH_MAX
    ):
        raise QueryError(
            f"{name!r} is not a name for an operator",
            hint=f"write 1 to {NAME_LENGTH_MAX} printable characters",
        )
    return name


def event_time_column(df: DataFrame, time: str | None) -> str | None:
    """The watermark's column: the declared one, or the only one with Spark's watermark metadata."""
    if time is not None:
        return time
    marked = [field.name for field in df.schema.fields if WATERMARK_KEY in field.metadata]
    return "`" + marked[0].replace("`", "``") + "`" if len(marked) == 1 else None
