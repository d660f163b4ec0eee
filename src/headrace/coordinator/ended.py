"""What becomes of queries that ended: which of them the coordinator forgets, and hosts hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

QUERIES_KEPT = 100  # a query's progress can be read after its end, while so few came after it


def forgotten(queries: Iterable[str], runs: Callable[[str], bool], kept: int = QUERIES_KEPT) -> set[str]:
    """Of queries in the order of their first batch, the oldest beyond `kept` that do not run any more."""
    known = list(dict.fromkeys(queries))
    return {query for query in known[: max(0, len(known) - kept)] if not runs(query)}


def held_queries(status: Mapping[str, Any]) -> set[str]:
    """The queries of which a host has state in memory, by its status."""
    return {part["query"] for part in status.get("partitions", ()) if part["store"] is not None}
