"""When windows close: in the batch whose data passes them (eager), or by Spark's watermark. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.errors import QueryError

Timing = Literal["auto", "spark", "eager"]
TIMINGS: tuple[Timing, ...] = ("auto", "spark", "eager")


@dataclass(frozen=True)
class Chosen:
    """A timing and why it is that one."""

    timing: Literal["spark", "eager"]
    reason: str


def choose_timing(setting: Timing, watermarks: Sequence[str], others: Sequence[str]) -> Chosen:
    """The timing of a query, by its watermark nodes and the stateful operators of Spark in it."""
    if setting == "spark":
        return Chosen("spark", "spark.headrace.timing=spark")
    if setting == "eager":
        if others:
            raise QueryError(
                f"spark.headrace.timing=eager beside stateful operators of Spark: {', '.join(others)}",
                hint="rows of these come by Spark's watermark and would be late: leave the setting at auto",
            )
        return Chosen("eager", "spark.headrace.timing=eager")
    if others:
        return Chosen("spark", f"the query has stateful operators of Spark: {', '.join(others)}")
    if len(watermarks) > 1:
        return Chosen("spark", f"{len(watermarks)} watermarks feed the query")
    return Chosen(
        "eager", "one watermark feeds the query, and all of its stateful operators are Headrace's"
    )
