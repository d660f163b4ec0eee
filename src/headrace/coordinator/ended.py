"""Queries that have ended: which ones the coordinator drops, and which ones a host still has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

QUERIES_KEPT = 100  # the progress of an ended query stays readable until this many newer queries exist


def ended_beyond(queries: Iterable[str], runs: Callable[[str], bool], kept: int = QUERIES_KEPT) -> set[str]:
    """The oldest ended queries beyond the newest `kept`; `queries` is ordered by first batch."""
    distinct = list(dict.fromkeys(queries))
    return {query for query in distinct[: max(0, len(distinct) - kept)] if not runs(query)}


def resident_queries(status: Mapping[str, Any]) -> set[str]:
    """The queries that have state in the host's memory, by the host's status."""
    return {part["query"] for part in status.get("partitions", ()) if part["store"] is not None}
