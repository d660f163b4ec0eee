"""Protects: event times of a batch are those of its own plan's watermark nodes, also of remembered ones.

The plans are stand-ins with Spark's names and way of counting nodes; `tests/spark` has real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JError

from headrace.spark.driver.event_times import EventTimes, largest_ms, operator_watermark_ms, shape_of

ZERO = "EventTimeStats(-9223372036854775808,9223372036854775807,0.0,0)"


@dataclass
class Node:
    """A node of a plan; `calls` counts what is asked of all nodes."""

    name: str
    children_: list[Node] = field(default_factory=list)
    id: str = ""
    stats: str = ZERO
    task: str = ""

    calls = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("nodeName", "nodeId", "children", "eventTimeStats"):
            Node.calls += 1
        return super().__getattribute__(name)

    def nodeName(self) -> str:
        return self.name

    def nodeId(self) -> Text:
        return Text(self.id)

    def func(self) -> Text:
        return Text(self.task)

    def children(self) -> Children:
        return Children(self.children_)

    def eventTimeStats(self) -> Text:
        if self.name != "EventTimeWatermark":
            raise Py4JError("Method eventTimeStats([]) does not exist")
        return Text(f"EventTimeStatsAccum(id: 1, name: None, value: {self.stats})")

    def treeString(self, depth: int = 0) -> str:
        detail = f" {self.id}, at#1: timestamp, 3 seconds" if self.id else " x#7"
        detail = f" {self.task}(__hash#1, k0#2)" if self.task else detail
        below = "".join(child.treeString(depth + 1) for child in self.children_)
        return f"{'   ' * depth}+- {self.name}{detail}\n{below}"

    def apply(self, number: int) -> Node | None:
        nodes = list(self.walk())
        return nodes[number] if number < len(nodes) else None

    def walk(self) -> list[Node]:
        return [self, *(node for child in self.children_ for node in child.walk())]


@dataclass
class Children:
    nodes: list[Node]

    def size(self) -> int:
        return len(self.nodes)

    def apply(self, index: int) -> Node:
        return self.nodes[index]


@dataclass
class Text:
    text: str

    def toString(self) -> str:
        return self.text

    def name(self) -> str:
        return self.text


@dataclass
class Exchange(Node):
    """A shuffle with an id of its own; Spark lets a second reader of the same rows point to it."""

    plan_id: int = 0

    def __getattribute__(self, name: str) -> Any:
        return (lambda: self.plan_id) if name == "id" else super().__getattribute__(name)

    def treeString(self, depth: int = 0) -> str:
        below = "".join(child.treeString(depth + 1) for child in self.children_)
        return f"{'   ' * depth}+- {self.name} SinglePartition, [plan_id={self.plan_id}]\n{below}"


@dataclass
class InJvm(Node):
    """An operator of the JVM."""

    operator: str = ""
    watermark: str = ""

    def operatorName(self) -> str:
        return self.operator

    def watermarkText(self) -> str:
        return self.watermark


@dataclass
class Reused(Node):
    of: Exchange | None = None

    def child(self) -> Exchange:
        assert self.of is not None
        return self.of

    def treeString(self, depth: int = 0) -> str:
        assert self.of is not None
        return f"{'   ' * depth}+- {self.name} [a#1], Exchange [plan_id={self.of.plan_id}]\n"


def stats(largest: int, count: int = 3) -> str:
    return f"EventTimeStats({largest},5,6.5E2,{count})"


def mark(node: str, largest: int) -> Node:
    return Node("EventTimeWatermark", [Node("Scan")], node, stats(largest))


def operator(name: str, *below: Node) -> Node:
    return Node("MapInArrow", list(below), task=f"headrace_{name}")


def union(*sides: Node) -> Node:
    return operator("op", Node("Union", [Node("Project", [side]) for side in sides]))


def test_event_times_of_nodes_and_of_several_with_one_id() -> None:
    plan = union(mark("a", 10), mark("b", 20), mark("a", 15))
    assert EventTimes().seen_ms(plan, "op", ["b", "a", "none"]) == [20, 15, None]


def test_a_copy_counts_for_the_nearest_operator_above_it_only() -> None:
    """Two views of one stream: what one branch has seen is nothing to the operators of the other."""
    times, nodes = EventTimes(), ["a"]
    for ahead in (100, 200):  # the second plan is of a known shape
        chain = operator("top", Exchange("Exchange", [operator("op", mark("a", 5))]))
        plan = Node("Union", [operator("beside", mark("a", ahead)), chain])
        assert times.seen_ms(plan, "op", nodes) == [5]
        assert times.seen_ms(plan, "beside", nodes) == [ahead]
        assert times.seen_ms(plan, "top", nodes) == [None], "it goes by the operator below"


def test_an_operator_in_the_jvm_stands_between_too() -> None:
    below = InJvm("Stateful", [mark("a", 5)], operator="below", watermark="4000")
    plan = operator("top", Exchange("Exchange", [below]))
    assert EventTimes().seen_ms(plan, "top", ["a"]) == [None]
    assert operator_watermark_ms(plan, "below") == 4000
    assert operator_watermark_ms(plan, "other") is None


def test_an_exchange_that_two_operators_read_counts_for_both() -> None:
    times = EventTimes()
    for first, at in ((7, 10), (8, 20)):
        shared = Exchange("Exchange", [Node("Filter", [mark("a", at)])], plan_id=first)
        other = Exchange("Exchange", [mark("a", 99)], plan_id=first + 10)
        second = operator("second", Reused("ReusedExchange", of=shared))
        plan = Node("Union", [operator("op", shared), operator("third", other), second])
        names = ("op", "second", "third")
        assert [times.seen_ms(plan, name, ["a"]) for name in names] == [[at], [at], [99]]


def test_a_plan_of_a_known_shape_is_asked_directly_and_answers_for_itself() -> None:
    times = EventTimes()
    times.seen_ms(union(mark("a", 10), mark("b", 20)), "op", ["a", "b"])
    Node.calls = 0
    assert times.seen_ms(union(mark("a", 30), mark("b", 40)), "op", ["a", "b"]) == [30, 40]
    assert Node.calls == 2, "the statistics of two nodes, and no walk"


def test_a_plan_of_another_shape_is_walked() -> None:
    times = EventTimes()
    times.seen_ms(union(mark("a", 10), mark("b", 20)), "op", ["a", "b"])
    assert times.seen_ms(union(mark("b", 50)), "op", ["a", "b"]) == [None, 50], "one side was pruned"
    swapped = union(mark("b", 5), mark("a", 6))
    assert times.seen_ms(swapped, "op", ["a", "b"]) == [6, 5], "sides change places"


def test_another_node_where_one_is_remembered_is_walked_again() -> None:
    class Hidden(Node):
        def treeString(self, depth: int = 0) -> str:
            return "the same for all\n"

    times = EventTimes()
    one = Hidden("MapInArrow", [mark("a", 10)], task="headrace_op")
    other = Hidden("MapInArrow", [Node("Project", [mark("a", 30)])], task="headrace_op")
    assert times.seen_ms(one, "op", ["a"]) == [10]
    assert times.seen_ms(other, "op", ["a"]) == [30]


def test_a_node_that_saw_nothing_says_none() -> None:
    assert largest_ms(f"EventTimeStatsAccum(id: 3, name: None, value: {ZERO})") is None
    assert largest_ms(stats(-5)) == -5
    with pytest.raises(ValueError, match="not the event times"):
        largest_ms("LongAccumulator(id: 3)")


def test_the_shape_has_no_numbers_of_columns() -> None:
    tree = "+- *(2) Project [a#1]\n   +- EventTimeWatermark 6d-3c, at#5: timestamp, 3 seconds\n"
    assert shape_of(tree) == shape_of(tree.replace("#1", "#99").replace("#5", "#77"))
    assert shape_of(tree) != shape_of(tree.replace("6d-3c", "6d-3d"))
