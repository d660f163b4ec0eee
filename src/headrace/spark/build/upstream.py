"""Which inputs decide an operator's watermark: watermark nodes below it, and operators below it.

An upstream operator emits rows whose times lie behind its watermark: a window comes out when the watermark
passes its end, and again while its lateness lasts. How far behind they may lie is the operator's hold. The
event time of a chained operator decides it:

- For the upstream operator's `window`, whose time is its end, it is the lateness.
- For any other column, such as the time of a joined row, it is the lateness and the width of every window
  below, or how far apart in time an operator without a window joins rows.

Over a stateful operator of Spark that delays rows, Spark's own watermarks decide, and nothing is held.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from headrace.errors import QueryError
from headrace.plan.frontier import TimeInputs
from headrace.plan.spec import OperatorSpec
from headrace.plan.window import kind_of
from headrace.spark.build.explain import built_below
from headrace.spark.language.columns import Resolved
from headrace.spark.language.plans import (
    Watermark,
    analysed,
    delaying_of_spark,
    time_branches,
    watermark_paths,
)

Input = tuple[DataFrame, Resolved | None]  # a stream, and its event time where rows can be late for it


def time_inputs(inputs: Sequence[Input], marks: Sequence[Watermark]) -> TimeInputs:
    """What decides the watermark of an operator over `inputs`; `marks` are all nodes below them."""
    paths = set[tuple[str, bool]]().union(*(watermark_paths(analysed(df)) for df, _ in inputs))
    upstream = [one for df, time in inputs for one in _upstream(df, time)]
    return TimeInputs(
        nodes=tuple(mark.node for mark in marks),
        direct=tuple(mark.node for mark in marks if (mark.node, False) in paths),
        through=tuple(mark.node for mark in marks if (mark.node, True) in paths),
        upstream=tuple(upstream),
    )


def _upstream(df: DataFrame, time: Resolved | None) -> list[tuple[str, int]]:
    marked = [built.spec for built in built_below(df) if built.spec.delays_ms]
    if not marked or time is None or delaying_of_spark(df):
        return [(spec.name, 0) for spec in marked]
    holds_us = {spec.name: 0 for spec in marked}
    for plan, is_window, columns in time_branches(analysed(df), time.expression):
        specs = [built.spec for built in built_below(df, plan) if built.spec.delays_ms]
        # The columns are those of the topmost operator: the times of those below it may be any of theirs.
        named = [columns, *[frozenset[str]()] * (len(specs) - 1)]
        widths = (_width_us(spec, time, names) for spec, names in zip(specs, named, strict=False))
        spread_us = 0 if is_window else sum(widths)
        for spec in specs:
            holds_us[spec.name] = max(holds_us[spec.name], _lateness_us(spec) + spread_us)
    return [(name, -(-hold_us // 1000)) for name, hold_us in holds_us.items()]


def _lateness_us(spec: OperatorSpec) -> int:
    return 0 if spec.window is None else spec.window.lateness_us


def _width_us(spec: OperatorSpec, time: Resolved, columns: frozenset[str]) -> int:
    hold_us = spec.work.hold_of(columns)
    if hold_us is None:
        raise QueryError(
            f"the rows of {spec.name} may be older than any watermark, because it stores rows for good",
            hint='give the join a limit: retain="1 day", or between=("-1 hour", "1 hour")',
        )
    if spec.window is None:
        return hold_us
    if kind_of(spec.window) != "fixed":
        raise QueryError(
            f"event time {time.name} is not the window of {spec.name}, whose windows may last for ever: "
            "its rows could be older than any watermark",
            hint='take the end of the window as event time: hr.tumbling(…, on="window")',
        )
    return spec.window.width_us
