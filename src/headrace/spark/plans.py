"""What Spark's analysed plan says: watermarks, Headrace operators below, whether expressions are equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

TASK_PREFIX = "headrace_"
WATERMARK_KEY = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class Watermark:
    """One `EventTimeWatermark` node: its identity in every plan of the query, and its delay."""

    node: str
    delay_ms: int


def analysed(df: DataFrame) -> Any:
    return df._jdf.queryExecution().analyzed()


def nodes(plan: Any) -> Iterator[Any]:
    """The plan's nodes, each before its children."""
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from nodes(children.apply(index))


def node_kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def watermarks(df: DataFrame) -> tuple[Watermark, ...]:
    """The watermark nodes below, each once: a plan that joins a stream with itself shows one twice."""
    jvm = df.sparkSession._jvm
    delay_of = jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.getDelayMs
    found = {}
    for node in nodes(analysed(df)):
        if node_kind(node) == "EventTimeWatermark":
            mark = Watermark(str(node.nodeId().toString()), int(delay_of(node.delay())))
            found[mark.node] = mark
    return tuple(found.values())


def operators_below(df: DataFrame) -> list[str]:
    """Names of the Headrace operators in the plan: their tasks are called `headrace_<name>`."""
    maps = (node for node in nodes(analysed(df)) if node_kind(node) == "MapInArrow")
    names = (str(node.functionExpr().name()) for node in maps)
    return [name.removeprefix(TASK_PREFIX) for name in names if name.startswith(TASK_PREFIX)]


def projected(df: DataFrame, selected: DataFrame) -> list[Any] | None:
    """The expressions that `selected` computes from each row of `df`; None when it does anything else."""
    plan = analysed(selected)
    if node_kind(plan) != "Project" or not plan.child().equals(analysed(df)):
        return None
    items = plan.projectList()
    return [_unaliased(items.apply(index)) for index in range(items.size())]


def _unaliased(expression: Any) -> Any:
    return expression.child() if node_kind(expression) == "Alias" else expression
