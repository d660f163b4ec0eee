"""Protects: event times of a batch are those of its own plan's watermark nodes, also of remembered ones.

The plans are stand-ins with Spark's names and way of counting nodes; `tests/spark` has real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JError

from headrace.spark.event_times import EventTimes, largest_ms, shape_of

ZERO = "EventTimeStats(-9223372036854775808,9223372036854775807,0.0,0)"


@dataclass
class Node:
    """A node of a plan; `calls` counts what is asked of all nodes."""

    name: str
    children_: list[Node] = field(default_factory=list)
    id: str = ""
    stats: str = ZERO

    calls = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("nodeName", "nodeId", "children", "eventTimeStats"):
            Node.calls += 1
        return super().__getattribute__(name)

    def nodeName(self) -> str:
        return self.name

    def nodeId(self) -> Text:
        return Text(self.id)

    def children(self) -> Children:
        return Children(self.children_)

    def eventTimeStats(self) -> Text:
        if self.name != "EventTimeWatermark":
            raise Py4JError("Method eventTimeStats([]) does not exist")
        return Text(f"EventTimeStatsAccum(id: 1, name: None, value: {self.stats})")

    def treeString(self, depth: int = 0) -> str:
        told = f" {self.id}, at#1: timestamp, 3 seconds" if self.id else " x#7"
        below = "".join(child.treeString(depth + 1) for child in self.children_)
        return f"{'   ' * depth}+- {self.name}{told}\n{below}"

    def apply(self, number: int) -> Node | None:
        found = list(self.walk())
        return found[number] if number < len(found) else None

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


def stats(largest: int, count: int = 3) -> str:
    return f"EventTimeStats({largest},5,6.5E2,{count})"


def mark(node: str, largest: int) -> Node:
    return Node("EventTimeWatermark", [Node("Scan")], node, stats(largest))


def union(*sides: Node) -> Node:
    return Node("Write", [Node("Union", [Node("Project", [side]) for side in sides])])


def test_event_times_of_nodes_and_of_several_with_one_id() -> None:
    plan = union(mark("a", 10), mark("b", 20), mark("a", 15))
    assert EventTimes().seen_ms(plan, ["b", "a", "none"]) == [20, 15, None]


def test_a_plan_of_a_known_shape_is_asked_directly_and_answers_for_itself() -> None:
    times = EventTimes()
    times.seen_ms(union(mark("a", 10), mark("b", 20)), ["a", "b"])
    Node.calls = 0
    assert times.seen_ms(union(mark("a", 30), mark("b", 40)), ["a", "b"]) == [30, 40]
    assert Node.calls == 2, "the statistics of two nodes, and no walk"


def test_a_plan_of_another_shape_is_walked() -> None:
    times = EventTimes()
    times.seen_ms(union(mark("a", 10), mark("b", 20)), ["a", "b"])
    assert times.seen_ms(union(mark("b", 50)), ["a", "b"]) == [None, 50], "one side was pruned"
    assert times.seen_ms(union(mark("b", 5), mark("a", 6)), ["a", "b"]) == [6, 5], "sides change places"


def test_another_node_where_one_is_remembered_is_walked_again() -> None:
    class Hidden(Node):
        def treeString(self, depth: int = 0) -> str:
            return "the same for all\n"

    times = EventTimes()
    one = Hidden("Write", [mark("a", 10)])
    other = Hidden("Write", [Node("Project", [mark("a", 30)])])
    assert times.seen_ms(one, ["a"]) == [10]
    assert times.seen_ms(other, ["a"]) == [30]


def test_a_node_that_saw_nothing_says_none() -> None:
    assert largest_ms(f"EventTimeStatsAccum(id: 3, name: None, value: {ZERO})") is None
    assert largest_ms(stats(-5)) == -5
    with pytest.raises(ValueError, match="not the event times"):
        largest_ms("LongAccumulator(id: 3)")


def test_the_shape_has_no_numbers_of_columns() -> None:
    tree = "+- *(2) Project [a#1]\n   +- EventTimeWatermark 6d-3c, at#5: timestamp, 3 seconds\n"
    assert shape_of(tree) == shape_of(tree.replace("#1", "#99").replace("#5", "#77"))
    assert shape_of(tree) != shape_of(tree.replace("6d-3c", "6d-3d"))
