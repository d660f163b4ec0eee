"""Parts that requests share: watermarks, the emit mode, event time, keys and the operator's name."""

from __future__ import annotations

from typing import Any, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import QueryError
from headrace.plan.spec import Emit, Field
from headrace.spark.language.changelogs import changelog_of
from headrace.spark.language.columns import Resolved, resolve
from headrace.spark.language.keys import flatten, rebuild
from headrace.spark.language.plans import Watermark, operators_below
from headrace.spark.language.windows import Sliding, TimeWindow, is_wall_time


def supported(
    df: DataFrame, marks: tuple[Watermark, ...], *, takes_changes: bool = False
) -> tuple[Watermark, ...]:
    """The watermarks; raises if the session combines them in a way that Headrace does not.

    Only operators that take changes may follow a changelog.
    """
    if not takes_changes:
        refuse_changelog(df)
    policy = str(df.sparkSession.conf.get("spark.sql.streaming.multipleWatermarkPolicy", "min")).lower()
    if len(marks) > 1 and policy != "min":
        raise QueryError(
            f"multipleWatermarkPolicy is {policy}, and the stream has several watermarks",
            hint="Headrace goes by the slowest: set spark.sql.streaming.multipleWatermarkPolicy to min",
        )
    return marks


def refuse_changelog(df: DataFrame) -> None:
    """Raises if the stream is a changelog."""
    if changelog_of(df) is not None:
        raise QueryError(
            "this operator takes plain rows, and its input is a changelog",
            hint='write emit="changes" below, or aggregate the changelog with groupBy(…).agg(…)',
        )


def emit_of(requested: Emit | None, window: TimeWindow | None, marks: tuple[Watermark, ...]) -> Emit:
    if requested not in (None, *get_args(Emit)):
        names = " or ".join(f'emit="{name}"' for name in get_args(Emit))
        raise QueryError(f"emit={requested!r}", hint=f"write {names}")
    emit: Emit = requested or ("final" if window else "changes")
    if emit == "final" and window is None:
        raise QueryError(
            'emit="final" needs a window: a running aggregate is never final',
            hint='add hr.tumbling(…) to groupBy, or write emit="changes"',
        )
    if emit == "final" and not marks:
        raise QueryError(
            'emit="final" (the default with a window) needs a watermark, or no window would ever close',
            hint='add .withWatermark("<event time>", "10 seconds") before groupBy, or write emit="changes"',
        )
    if window is not None and not window.aligned and not marks:
        raise QueryError(
            "sessions and windows of each key's own need a watermark, or none would ever be over",
            hint='add .withWatermark("<event time>", "10 seconds") before groupBy',
        )
    _refuse_windows(emit, window)
    return emit


def _refuse_windows(emit: Emit, window: TimeWindow | None) -> None:
    """Sessions merge, and a sliding window shares its state with others."""
    if window is None:
        return
    if emit != "final" and window.emits_once:
        raise QueryError(
            f'windows over rows in their order are emitted when they are complete, not with emit="{emit}"',
            hint='write emit="final", or leave emit out',
        )
    if emit == "complete" and not window.aligned:
        raise QueryError(
            'emit="complete" over sessions would never forget one', hint='write emit="final" or "changes"'
        )
    if emit == "changelog" and (isinstance(window, Sliding) or not window.aligned):
        raise QueryError(
            f'emit="changelog" over {type(window).__name__.lower()} windows is not possible',
            hint='take hr.tumbling(…), or write emit="final": a window that is emitted once never changes',
        )


def time_of(
    df: DataFrame,
    watermark_column: str | None,
    window: TimeWindow | None,
    ordered: str | None,
    marks: tuple[Watermark, ...],
) -> Resolved | None:
    """The event time, if rows must carry one."""
    if window is None and ordered is None:
        return None
    written: Any = window.on if window and window.on is not None else watermark_column
    if written is None:
        what = "the window" if window else ordered
        raise QueryError(
            f"{what} needs an event time, and none is known",
            hint='add .withWatermark("<event time>", …) before groupBy, or tumbling(…, on="<event time>")',
        )
    resolved = resolve(df, written, "event time")
    if marks and is_wall_time(resolved.type):
        raise QueryError(
            f"event time {resolved.name} has no time zone, but the stream's watermark has one",
            hint="cast it to timestamp, or leave the watermark out",
        )
    return resolved


def key_of(df: DataFrame, written: str | Column | TimeWindow) -> Resolved | None:
    return None if isinstance(written, TimeWindow) else resolve(df, written, "groupBy")


def wire_keys(
    keys: list[Resolved | None], window: Column | None
) -> tuple[list[Field], list[Column], list[Column]]:
    """Fields and leaves of all keys, and the output columns; None stands for the window."""
    fields: list[Field] = []
    columns: list[Column] = []
    outputs: list[Column] = []
    for key in keys:
        if key is None:
            assert window is not None
            outputs.append(window)
            continue
        start = len(fields)
        for leaf in flatten(key.column, key.type, key.nullable, key.name):
            fields.append(Field(f"k{len(fields)}", leaf.type, leaf.label))
            columns.append(leaf.column)
        named = iter([F.col(field.name) for field in fields[start:]])
        outputs.append(rebuild(key.type, key.nullable, named).alias(key.name))
    return fields, columns, outputs


def name_of(df: DataFrame, requested: str | None) -> str:
    below = operators_below(df)
    name = requested or f"aggregate-{len(below) + 1}"
    if name in below:
        raise QueryError(
            f"the query has two operators of the name {name}",
            hint="give one of them another name: .name(…)",
        )
    return name
