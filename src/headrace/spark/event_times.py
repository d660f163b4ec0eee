"""The largest event times of a batch, read from the watermark nodes of its physical plan.

Every step from node to node is a call to the JVM, of a third of a millisecond, and each operator asks in
every batch. A query's plan has the same shape batch after batch; so where the nodes stand is remembered by
the shape, which is one call to read, and they are asked directly.
Threads: one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError

NODE = "EventTimeWatermark"
_SHAPES_MAX = 64
_LINE = re.compile(r"[\s:+|-]*(?:\*\s?\(\d+\)\s)?\w*")
_STATS = re.compile(r"EventTimeStats\((-?\d+),-?\d+,[^,]*,(\d+)\)")

Shape = tuple[str, ...]


class EventTimes:
    """Reads plans; remembers the shapes of those it has read."""

    def __init__(self) -> None:
        self._places: dict[Shape, list[tuple[int, str]]] = {}  # of watermark nodes: their number, their id

    def seen_ms(self, plan: Any, nodes: Sequence[str]) -> list[int | None]:
        """The largest event time (ms) that each of the nodes has seen so far; None where it saw none."""
        seen: dict[str, int | None] = dict.fromkeys(nodes)
        for node, at_ms in self._all(plan):
            if node in seen and at_ms is not None:
                known = seen[node]
                seen[node] = at_ms if known is None else max(known, at_ms)
        return list(seen.values())

    def _all(self, plan: Any) -> list[tuple[str, int | None]]:
        shape = shape_of(plan.treeString())
        places = self._places.get(shape)
        if places is not None:
            try:
                return [(node, _largest_ms(plan.apply(number))) for number, node in places]
            except Py4JError:  # another kind of node stands there
                del self._places[shape]
        found = list(_watermarks(plan))
        if all(_is_node(plan.apply(number), node) for number, node, _ in found):
            if len(self._places) >= _SHAPES_MAX:
                self._places.clear()
            self._places[shape] = [(number, node) for number, node, _ in found]
        return [(node, _largest_ms(at)) for _, node, at in found]


def shape_of(tree: str) -> Shape:
    """The nodes of a plan as it prints itself: their depth and kind, and the ids of watermarks."""
    return tuple(
        line.split(",")[0] if NODE in line else _LINE.findall(line)[0] for line in tree.splitlines()
    )


def largest_ms(stats: str) -> int | None:
    """The largest event time, as a node's statistics print themselves; None where there are none."""
    found = _STATS.search(stats)
    if found is None:
        raise ValueError(f"not the event times of a watermark node: {stats}")
    return int(found[1]) if int(found[2]) else None


def _largest_ms(node: Any) -> int | None:
    return largest_ms(node.eventTimeStats().toString())


def _is_node(node: Any, wanted: str) -> bool:
    return node is not None and node.nodeName() == NODE and node.nodeId().toString() == wanted


def _watermarks(plan: Any) -> Iterator[tuple[int, str, Any]]:
    """All watermark nodes below: their numbers, as Spark counts the nodes of a plan, and their ids."""
    pending, number = [plan], 0
    while pending:
        node = pending.pop()
        name = node.nodeName()
        if name == NODE:
            yield number, node.nodeId().toString(), node
        children = node.children()
        below = [children.apply(index) for index in range(children.size())]
        if name == "AdaptiveSparkPlan":
            below.append(node.executedPlan())
        elif name.endswith("QueryStage"):
            below.append(node.plan())
        pending += reversed(below)
        number += 1
