"""Earlier batches of a running query, read from Spark: which operators they had, what they read.

An operator without rows to read is not in a batch's plan. One that is in the plan must run: a foreachBatch
function that leaves its batch unread would lose the rows. Threads: the JVM's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headrace.spark.language.plans import TASK_PREFIX, node_kind, nodes, operator_of

_TASK = re.compile(rf"MapInArrow {TASK_PREFIX}(.*?)\(__hash#")
_SOURCES = {
    "StreamingExecutionRelation": "source",
    "StreamingDataSourceV2ScanRelation": "stream",
    "StreamingDataSourceV2Relation": "stream",
}


def operators_before(query: Any, batch: int) -> set[str]:
    """The Python tasks in the plan of the batch before the running one; empty without such a plan."""
    before = query.getLatestExecutionContext().previousContext()
    plan = before.get().executionPlan() if before.isDefined() else None
    if plan is None or plan.currentBatchId() != batch - 1:
        return set()
    return set(_TASK.findall(plan.executedPlan().treeString()))


def first_with_input(query: Any, operator: str, batches: Sequence[int]) -> int | None:
    """The first of these batches in which a source of the operator had something new, by Spark's log."""
    places = _source_places(query, operator)
    for batch in batches:
        before, after = (_offsets(query, number, places) for number in (batch - 1, batch))
        if before is not None and after is not None and before != after:
            return batch
    return None


def _source_places(query: Any, operator: str) -> list[int]:
    """Where the sources of an operator stand in Spark's offset log."""
    top = next((node for node in nodes(query.logicalPlan()) if _is_operator(node, operator)), None)
    if top is None:
        return []
    read = [getattr(leaf, _SOURCES[kind])() for leaf in nodes(top) if (kind := node_kind(leaf)) in _SOURCES]
    sources = query.sources()
    places = range(sources.size())
    return [place for place in places if any(sources.apply(place).equals(source) for source in read)]


def _is_operator(node: Any, name: str) -> bool:
    operator = operator_of(node)
    return operator is not None and operator[0] == name


def _offsets(query: Any, batch: int, places: Sequence[int]) -> list[str | None] | None:
    """How far the sources had been read after a batch; None where Spark's log does not have it."""
    if batch < 0:
        return [None for _ in places]
    logged = query.offsetLog().get(batch)
    if not logged.isDefined():
        return None
    offsets = logged.get().offsets()
    if offsets.size() != query.sources().size():
        return None
    return [_text(offsets.apply(place)) for place in places]


def _text(offset: Any) -> str | None:
    return str(offset.get().json()) if offset.isDefined() else None
