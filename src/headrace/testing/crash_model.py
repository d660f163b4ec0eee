"""What the crash rounds' queries must find: plain dictionaries over plain rows, batch by batch.

It shares nothing with the engine: no Arrow, no hashes, no kernels. A row is late when the watermark of
the batch before has closed its window; a window closes in the batch whose rows pass it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.testing.crash_input import Row
from headrace.testing.crash_queries import DELAY_US, NARROW_US, WIDE_US, Kind

Key = tuple[Any, ...]
Output = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Totals:
    """Count, sum, max and min of one group; None while there was no value."""

    n: int = 0
    total: float | None = None
    top: int | None = None
    least: str | None = None

    def add(self, n: int, total: float | None, top: int | None, least: str | None) -> Totals:
        return Totals(
            self.n + n,
            _joined(self.total, total, lambda a, b: a + b),
            _joined(self.top, top, max),
            _joined(self.least, least, lambda a, b: min(a, b, key=str.encode)),
        )

    @property
    def values(self) -> tuple[Any, ...]:
        return self.n, self.total, self.top, self.least


def _joined(left: Any, right: Any, join: Callable[[Any, Any], Any]) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return join(left, right)


@dataclass
class Expected:
    """Output rows per batch, and per operator its state and late rows at the end."""

    emitted: list[Output] = field(default_factory=list)
    state: dict[str, dict[Key, Totals]] = field(default_factory=dict)
    late_rows: dict[str, int] = field(default_factory=dict)


def expected(kind: Kind, batches: Iterable[list[Row]]) -> Expected:
    """What the query `kind` emits and keeps."""
    return _running(batches) if kind == "running" else _windowed(kind, batches)


def _running(batches: Iterable[list[Row]]) -> Expected:
    groups: dict[Key, Totals] = {}
    found = Expected(state={"running": groups}, late_rows={"running": 0})
    for rows in batches:
        for row in rows:
            key = (row.user, row.item)
            groups[key] = groups.get(key, Totals()).add(1, row.amount, row.bid, row.note)
        changed = {(row.user, row.item) for row in rows}
        found.emitted.append(Counter((*key, *groups[key].values) for key in changed))
    return found


def _windowed(kind: Kind, batches: Iterable[list[Row]]) -> Expected:
    narrow: dict[Key, Totals] = {}
    wide: dict[Key, Totals] = {}
    found = Expected(state={"narrow": narrow}, late_rows={"narrow": 0})
    if kind == "chained":
        found.state["wide"], found.late_rows["wide"] = wide, 0
    frontier_ms: int | None = None
    for rows in batches:
        before = _watermark_us(frontier_ms)
        found.late_rows["narrow"] += _fold(narrow, rows, before)
        frontier_ms = max(
            [row.ts_us // 1000 for row in rows] + ([] if frontier_ms is None else [frontier_ms])
        )
        closed = _close(narrow, NARROW_US, _watermark_us(frontier_ms))
        if kind == "chained":
            for (user, _, start), totals in closed.items():
                key = (user, _start(start + NARROW_US - 1, WIDE_US))
                wide[key] = wide.get(key, Totals()).add(*totals.values)
            closed = _close(wide, WIDE_US, _watermark_us(frontier_ms))
        found.emitted.append(Counter((*key, *totals.values) for key, totals in closed.items()))
    return found


def _fold(groups: dict[Key, Totals], rows: list[Row], watermark_us: int | None) -> int:
    """Add rows to their windows; returns how many were late."""
    late = 0
    for row in rows:
        start = _start(row.ts_us, NARROW_US)
        if watermark_us is not None and start + NARROW_US <= watermark_us:
            late += 1
            continue
        key = (row.user, row.item, start)
        groups[key] = groups.get(key, Totals()).add(1, row.amount, row.bid, row.note)
    return late


def _close(groups: dict[Key, Totals], width_us: int, watermark_us: int | None) -> dict[Key, Totals]:
    """Take out the groups whose window, the last part of their key, has ended."""
    ended = [key for key in groups if watermark_us is not None and key[-1] + width_us <= watermark_us]
    return {key: replace(groups.pop(key)) for key in ended}


def _start(at_us: int, width_us: int) -> int:
    return at_us - at_us % width_us


def _watermark_us(frontier_ms: int | None) -> int | None:
    return None if frontier_ms is None else frontier_ms * 1000 - DELAY_US
