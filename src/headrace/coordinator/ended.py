"""Which ended queries the coordinator forgets: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

QUERIES_KEPT = 100  # a query's progress can be read after its end, while so few came after it


def forgotten(queries: Iterable[str], runs: Callable[[str], bool], kept: int = QUERIES_KEPT) -> set[str]:
    """Of queries in the order of their first batch, the oldest beyond `kept` that do not run any more."""
    known = list(dict.fromkeys(queries))
    return {query for query in known[: max(0, len(known) - kept)] if not runs(query)}
