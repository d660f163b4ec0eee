"""Spark's analysed plan: watermarks, Headrace operators below, whether expressions are equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from headrace.plan.spec import WINDOW_END, WINDOW_START

TASK_PREFIX = "headrace_"
STATE_NODE = "StateNode"  # of the JVM's own operator
PACED_NODE = "PacedNode"  # below user code that follows Spark's watermark
# Stateful operators of Spark whose rows pass in their own batch.
PASSING = frozenset({"Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit"})
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
    for child in _children(plan):
        yield from nodes(child)


def _children(plan: Any) -> list[Any]:
    return items(plan.children())


def items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def node_kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def watermarks(df: DataFrame) -> tuple[Watermark, ...]:
    """The watermark nodes below, each once: a plan that joins a stream with itself shows one twice."""
    jvm = df.sparkSession._jvm
    delay_of = jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.getDelayMs
    marks = {}
    for node in nodes(analysed(df)):
        if node_kind(node) == "EventTimeWatermark":
            mark = Watermark(str(node.nodeId().toString()), int(delay_of(node.delay())))
            marks[mark.node] = mark
    return tuple(marks.values())


def watermark_paths(plan: Any, *, through: bool = False) -> set[tuple[str, bool]]:
    """The ids of the watermark nodes below, and whether a path to them leads through an operator."""
    through = through or operator_of(plan) is not None
    paths = {(str(plan.nodeId().toString()), through)} if node_kind(plan) == "EventTimeWatermark" else set()
    return paths.union(*(watermark_paths(child, through=through) for child in _children(plan)))


def operators_below(df: DataFrame) -> list[str]:
    """Names of the Headrace operators in the plan."""
    return [name for name, _ in operators(analysed(df))]


def operators(plan: Any) -> list[tuple[str, str]]:
    """Name and id of every Headrace operator in a plan, the top one first."""
    return [operator for node in nodes(plan) if (operator := operator_of(node)) is not None]


def operator_of(node: Any) -> tuple[str, str] | None:
    """Name and id of a Headrace operator; None for any other node.

    An operator is a node of its own in the JVM, or a Python task that is called `headrace_<name>`.
    """
    kind = node_kind(node)
    if kind == STATE_NODE:
        return str(node.operatorName()), str(node.operatorUid())
    if kind != "MapInArrow":
        return None
    name = str(node.functionExpr().name())
    if not name.startswith(TASK_PREFIX):
        return None
    return name.removeprefix(TASK_PREFIX), str(node.functionExpr().resultId().id())


def stateful_of_spark(df: DataFrame) -> list[str]:
    """The kinds of stateful operators that follow Spark's watermark, each once: Spark's, and processors."""
    kinds = [node_kind(node) for node in nodes(analysed(df)) if node.isStateful()]
    named = ["processor" if kind == PACED_NODE else kind for kind in kinds]
    return [kind for kind in dict.fromkeys(named) if kind != STATE_NODE]


def delaying_of_spark(df: DataFrame) -> list[str]:
    """The kinds of stateful operators below whose rows come a batch later, each once."""
    return [kind for kind in stateful_of_spark(df) if kind not in PASSING]


def time_branches(plan: Any, expression: Any) -> Iterator[tuple[Any, bool, frozenset[str]]]:
    """The branches of a plan that operators stand in: whether `expression` is their `window` there, and
    which columns it comes from.

    Branches are those of unions: the expression may come from another place in each.
    """
    expression = _same_value(_window_of_end(expression))
    kind = node_kind(plan)
    if not operators(plan):
        return
    if node_kind(expression) != "AttributeReference":
        yield plan, False, _names_in(expression)
    elif kind == "Union":
        place = _place_of(expression, plan.output())
        for side in _children(plan):
            yield from time_branches(side, side.output().apply(place))
    elif kind == "Project":
        item = plan.projectList().apply(_place_of(expression, plan.output()))
        if _is_window(_unaliased(item)):
            yield plan, True, frozenset()
        else:
            yield from time_branches(plan.child(), _unaliased(item))
    else:
        below = [child for child in _children(plan) if child.outputSet().contains(expression)]
        for child in below:
            yield from time_branches(child, expression)
        if not below:
            yield plan, False, _names_in(expression)


def _names_in(expression: Any) -> frozenset[str]:
    return frozenset(str(one.name()) for one in items(expression.references().toSeq()))


def _window_of_end(expression: Any) -> Any:
    """The window, where the expression is its end."""
    is_end = node_kind(expression) == "GetStructField" and str(expression.extractFieldName()) == "end"
    return expression.child() if is_end else expression


def _same_value(expression: Any) -> Any:
    """The expression without a cast that changes nothing but what may be null, as unions insert it."""
    if node_kind(expression) != "Cast":
        return expression
    types = [str(one.dataType().catalogString()) for one in (expression, expression.child())]
    return expression.child() if types[0] == types[1] else expression


def _place_of(attribute: Any, output: Any) -> int:
    return next(n for n, one in enumerate(items(output)) if one.exprId().equals(attribute.exprId()))


def _is_window(expression: Any) -> bool:
    """Whether this is the struct of window bounds that an operator's output begins with."""
    names = _names_in(expression)
    return node_kind(expression) == "CreateNamedStruct" and names == {WINDOW_START, WINDOW_END}


def projected(df: DataFrame, selected: DataFrame) -> list[Any] | None:
    """The expressions that `selected` computes from each row of `df`; None when it does anything else."""
    plan = analysed(selected)
    if node_kind(plan) != "Project" or not plan.child().equals(analysed(df)):
        return None
    items = plan.projectList()
    return [_unaliased(items.apply(index)) for index in range(items.size())]


def _unaliased(expression: Any) -> Any:
    return expression.child() if node_kind(expression) == "Alias" else expression
