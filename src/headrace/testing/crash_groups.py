"""Rows by key and window, as the crash rounds' model holds them: plain lists, nothing of the engine.

A row is late when the watermark has closed every window that it could be in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.testing.crash_input import Row

Key = tuple[Any, ...]
Bounds = tuple[int, int]  # start and end of a window in microseconds
Group = tuple[Key, Bounds]
Place = Callable[["Groups", Key, int, int | None], list[Bounds]]


@dataclass
class Groups:
    """The rows of every open window of every key; `place` says which open windows of a key a time is in."""

    place: Place
    held: dict[Group, list[Row]] = field(default_factory=dict)

    def take(self, key: Key, at_us: int, rows: list[Row], watermark_us: int | None) -> bool:
        """Put rows of one time into their windows; False when they are late."""
        found = self.place(self, key, at_us, watermark_us)
        for bounds in found:
            self.held.setdefault((key, bounds), []).extend(rows)
        return bool(found)

    def close(self, watermark_us: int | None) -> dict[Group, list[Row]]:
        """Take out the windows that the watermark has passed."""
        ended = [group for group in self.held if not _is_open(group[1], watermark_us)]
        return {group: self.held.pop(group) for group in ended}


def fixed(width_us: int, slide_us: int) -> Place:
    """Windows of one width, one every slide."""

    def place(_: Groups, __: Key, at_us: int, watermark_us: int | None) -> list[Bounds]:
        starts = range(at_us - at_us % slide_us, at_us - width_us, -slide_us)
        windows = [(start, start + width_us) for start in starts]
        return [bounds for bounds in windows if _is_open(bounds, watermark_us)]

    return place


def sessions(gap_us: int) -> Place:
    """A time's own session, made one with all sessions of the key that it touches.

    A row is late when its own session would be over, whatever it touches.
    """

    def place(groups: Groups, key: Key, at_us: int, watermark_us: int | None) -> list[Bounds]:
        start, end = at_us, at_us + gap_us
        if not _is_open((start, end), watermark_us):
            return []
        touched = [
            (owner, bounds)
            for owner, bounds in groups.held
            if owner == key and bounds[0] <= end and start <= bounds[1]
        ]
        if not touched:
            return [(start, end)]
        rows = [row for group in touched for row in groups.held.pop(group)]
        merged = (
            min(start, *(low for _, (low, _) in touched)),
            max(end, *(high for _, (_, high) in touched)),
        )
        groups.held[key, merged] = rows
        return [merged]

    return place


def _is_open(bounds: Bounds, watermark_us: int | None) -> bool:
    return watermark_us is None or bounds[1] > watermark_us
