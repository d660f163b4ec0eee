"""The largest event times of a batch, read from the watermark nodes of its physical plan.

A plan may hold several copies of one watermark node: a stream that is used twice stands there twice, under
one id, and a filter on one use is pushed below its copy. A copy belongs to the nearest Headrace operator
above it, because an operator's watermark is that of its own inputs (docs/design/0005-watermarks.md).

Every step from node to node is a call to the JVM, of a third of a millisecond, and each operator makes them
in every batch. A query's plan has the same shape batch after batch; so where the copies stand is cached by
the shape, which is one call to read, and they are read directly.
Threads: one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError

from headrace.spark.language.plans import TASK_PREFIX

NODE, TASK, EXCHANGE, REUSED = "EventTimeWatermark", "MapInArrow", "Exchange", "ReusedExchange"
OPERATORS = ("Stateful", "Plain")  # execs of the JVM's own operators
_SHAPES_MAX = 64
_LINE = re.compile(r"[\s:+|-]*(?:\*\s?\(\d+\)\s)?\w*")
_PLAN_ID = re.compile(r"plan_id=(\d+)")
_STATS = re.compile(r"EventTimeStats\((-?\d+),-?\d+,[^,]*,(\d+)\)")

Shape = tuple[str, ...]


@dataclass(frozen=True)
class Copy:
    """A watermark node in a plan: its number there, its id, and the operator that it feeds."""

    number: int
    node: str
    operator: str | None


class EventTimes:
    """Reads plans; remembers the shapes of those it has read."""

    def __init__(self) -> None:
        self._copies: dict[Shape, list[Copy]] = {}

    def seen_ms(self, plan: Any, operator: str, nodes: Sequence[str]) -> list[int | None]:
        """The largest event time (ms) that reached the operator through each node; None where none did.

        Copies of one node below one operator are one stream: the largest time of any of them counts.
        """
        seen: dict[str, int | None] = dict.fromkeys(nodes)
        for node, at_ms in self._below(plan, operator):
            if node in seen and at_ms is not None:
                known = seen[node]
                seen[node] = at_ms if known is None else max(known, at_ms)
        return list(seen.values())

    def _below(self, plan: Any, operator: str) -> list[tuple[str, int | None]]:
        shape = shape_of(plan.treeString())
        copies = self._copies.get(shape)
        if copies is not None:
            mine = [copy for copy in copies if copy.operator == operator]
            try:
                return [(copy.node, _largest_ms(plan.apply(copy.number))) for copy in mine]
            except Py4JError:  # another kind of node stands there
                del self._copies[shape]
        read = list(_Walk().copies(plan))
        if all(_is_node(plan.apply(copy.number), copy.node) for copy, _ in read):
            if len(self._copies) >= _SHAPES_MAX:
                self._copies.clear()
            self._copies[shape] = [copy for copy, _ in read]
        return [(copy.node, _largest_ms(at)) for copy, at in read if copy.operator == operator]


def shape_of(tree: str) -> Shape:
    """The nodes of a plan as it prints itself: their depth and kind, and what distinguishes copies.

    Those are the ids of watermarks, the names of operators, and which exchange a reused one stands for.
    """
    exchanges: dict[str, int] = {}
    return tuple(_line_shape(line, exchanges) for line in tree.splitlines())


def _line_shape(line: str, exchanges: dict[str, int]) -> str:
    kind = _LINE.findall(line)[0]
    plan_id = _PLAN_ID.search(line)
    if kind.endswith(REUSED) and plan_id is not None:
        return f"{kind} {exchanges.get(plan_id[1], -1)}"
    if kind.endswith(EXCHANGE) and plan_id is not None:
        exchanges[plan_id[1]] = len(exchanges)
    if kind.endswith(NODE):
        return line.split(",")[0]
    return line.partition("(__hash#")[0] if kind.endswith(TASK) else str(kind)


def largest_ms(stats: str) -> int | None:
    """The largest event time, as a node's statistics print themselves; None where there are none."""
    matched = _STATS.search(stats)
    if matched is None:
        raise ValueError(f"not the event times of a watermark node: {stats}")
    return int(matched[1]) if int(matched[2]) else None


def _largest_ms(node: Any) -> int | None:
    return largest_ms(node.eventTimeStats().toString())


def _is_node(node: Any, wanted: str) -> bool:
    return node is not None and node.nodeName() == NODE and node.nodeId().toString() == wanted


@dataclass
class _Below:
    """What stands below an operator or an exchange, down to the next operator."""

    marks: list[tuple[int, str, Any]] = field(default_factory=list)
    reused: list[int] = field(default_factory=list)  # ids of exchanges that are read a second time
    exchanges: list[_Below] = field(default_factory=list)


class _Walk:
    """One walk over a plan, which counts nodes as Spark does."""

    def __init__(self) -> None:
        self._number = -1
        self._operators: list[tuple[str | None, _Below]] = []
        self._exchanges: dict[int, _Below] = {}

    def copies(self, plan: Any) -> Iterator[tuple[Copy, Any]]:
        """All watermark nodes, each once per operator that it feeds."""
        top = _Below()
        self._operators.append((None, top))
        self._visit(plan, top)
        for operator, below in self._operators:
            for number, node, at in self._marks(below):
                yield Copy(number, node, operator), at

    def _marks(self, below: _Below) -> list[tuple[int, str, Any]]:
        marks = list(below.marks)
        for inner in (*below.exchanges, *(self._exchanges[id_] for id_ in below.reused)):
            marks += self._marks(inner)
        return marks

    def _visit(self, node: Any, into: _Below) -> None:
        self._number += 1
        name = node.nodeName()
        if name == NODE:
            into.marks.append((self._number, node.nodeId().toString(), node))
        elif name == REUSED:
            into.reused.append(node.child().id())
        elif name.endswith(EXCHANGE):
            outer, into = into, _Below()
            outer.exchanges.append(into)
            self._exchanges[node.id()] = into
        elif name in OPERATORS:
            into = _Below()
            self._operators.append((str(node.operatorName()), into))
        elif name == TASK and (task := str(node.func().name())).startswith(TASK_PREFIX):
            into = _Below()
            self._operators.append((task.removeprefix(TASK_PREFIX), into))
        for child in _children(node, name):
            self._visit(child, into)


def operator_watermark_ms(plan: Any, operator: str) -> int | None:
    """The watermark of an operator in the JVM after its tasks of the batch; None without one."""
    stack = [plan]
    while stack:
        node = stack.pop()
        name = node.nodeName()
        if name in OPERATORS and node.operatorName() == operator:
            at_ms = node.watermarkText()
            return int(at_ms) if at_ms else None
        stack += _children(node, name)
    return None


def _children(node: Any, name: str) -> list[Any]:
    children = node.children()
    below = [children.apply(index) for index in range(children.size())]
    if name == "AdaptiveSparkPlan":
        below.append(node.executedPlan())
    elif name.endswith("QueryStage"):
        below.append(node.plan())
    return below
