"""Rows by key and window, as the model of the crash rounds has them: plain lists, nothing of the engine.

A row is late when the watermark has closed every window that it could be in. A window with lateness is
emitted when the watermark passes its end. It accepts rows for its lateness after that, and is emitted again
in every batch that adds a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.testing.crash.input import Row

Key = tuple[Any, ...]
Bounds = tuple[int, int]  # start and end of a window in microseconds
Group = tuple[Key, Bounds]
Place = Callable[["Groups", Key, int, int | None], list[Bounds]]


@dataclass
class Groups:
    """The rows of every open window of every key; `place` returns the open windows of a key at a time."""

    place: Place
    lateness_us: int = 0
    open_rows: dict[Group, list[Row]] = field(default_factory=dict)
    _emitted: set[Group] = field(default_factory=set)
    _fresh: set[Group] = field(default_factory=set)  # windows with a new row since the last close

    def take(self, key: Key, at_us: int, rows: list[Row], watermark_us: int | None) -> bool:
        """Puts rows of one time into their windows; returns False when they are late."""
        windows = self.place(self, key, at_us, watermark_us)
        for bounds in windows:
            self.open_rows.setdefault((key, bounds), []).extend(rows)
            self._fresh.add((key, bounds))
        return bool(windows)

    def close(self, watermark_us: int | None) -> dict[Group, list[Row]]:
        """The groups that are emitted now; drops windows that accept no more rows."""
        ended = [group for group in self.open_rows if not _is_open(group[1], watermark_us)]
        due = [group for group in ended if group not in self._emitted or group in self._fresh]
        due_rows = {group: list(self.open_rows[group]) for group in due}
        self._emitted.update(due)
        self._fresh.clear()
        for group in ended:
            if not _is_open(group[1], watermark_us, self.lateness_us):
                del self.open_rows[group]
        return due_rows

    @property
    def unseen(self) -> dict[Group, list[Row]]:
        """The groups that were never emitted."""
        return {group: rows for group, rows in self.open_rows.items() if group not in self._emitted}


def fixed(width_us: int, slide_us: int, offset_us: int = 0) -> Place:
    """Windows of one width, one every slide."""

    def place(groups: Groups, _: Key, at_us: int, watermark_us: int | None) -> list[Bounds]:
        starts = range(at_us - (at_us - offset_us) % slide_us, at_us - width_us, -slide_us)
        windows = [(start, start + width_us) for start in starts]
        return [bounds for bounds in windows if _is_open(bounds, watermark_us, groups.lateness_us)]

    return place


def sessions(gap_us: int) -> Place:
    """A time's own session, merged with all sessions of the key that it touches.

    A row is late when its own session would be over, whatever it touches.
    """

    def place(groups: Groups, key: Key, at_us: int, watermark_us: int | None) -> list[Bounds]:
        start, end = at_us, at_us + gap_us
        if not _is_open((start, end), watermark_us):
            return []
        touched = [
            (owner, bounds)
            for owner, bounds in groups.open_rows
            if owner == key and bounds[0] <= end and start <= bounds[1]
        ]
        if not touched:
            return [(start, end)]
        rows = [row for group in touched for row in groups.open_rows.pop(group)]
        merged = (
            min(start, *(low for _, (low, _) in touched)),
            max(end, *(high for _, (_, high) in touched)),
        )
        groups.open_rows[key, merged] = rows
        return [merged]

    return place


def _is_open(bounds: Bounds, watermark_us: int | None, lateness_us: int = 0) -> bool:
    return watermark_us is None or bounds[1] + lateness_us > watermark_us
