"""Rows by key and window, as the crash rounds' model holds them: plain lists, nothing of the engine.

A row is late when the watermark has closed every window that it could be in. A window with lateness is
given out when the watermark passes its end, takes rows for as long as its lateness after that, and is given
out again in every batch that brings it one.
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
    lateness_us: int = 0
    held: dict[Group, list[Row]] = field(default_factory=dict)
    _given: set[Group] = field(default_factory=set)
    _fresh: set[Group] = field(default_factory=set)  # got a row since the last close

    def take(self, key: Key, at_us: int, rows: list[Row], watermark_us: int | None) -> bool:
        """Put rows of one time into their windows; False when they are late."""
        found = self.place(self, key, at_us, watermark_us)
        for bounds in found:
            self.held.setdefault((key, bounds), []).extend(rows)
            self._fresh.add((key, bounds))
        return bool(found)

    def close(self, watermark_us: int | None) -> dict[Group, list[Row]]:
        """What is given out now; windows that take no more rows are forgotten."""
        ended = [group for group in self.held if not _is_open(group[1], watermark_us)]
        due = [group for group in ended if group not in self._given or group in self._fresh]
        found = {group: list(self.held[group]) for group in due}
        self._given.update(due)
        self._fresh.clear()
        for group in ended:
            if not _is_open(group[1], watermark_us, self.lateness_us):
                del self.held[group]
        return found

    @property
    def unseen(self) -> dict[Group, list[Row]]:
        """What was never given out."""
        return {group: rows for group, rows in self.held.items() if group not in self._given}


def fixed(width_us: int, slide_us: int, offset_us: int = 0) -> Place:
    """Windows of one width, one every slide."""

    def place(groups: Groups, _: Key, at_us: int, watermark_us: int | None) -> list[Bounds]:
        starts = range(at_us - (at_us - offset_us) % slide_us, at_us - width_us, -slide_us)
        windows = [(start, start + width_us) for start in starts]
        return [bounds for bounds in windows if _is_open(bounds, watermark_us, groups.lateness_us)]

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


def _is_open(bounds: Bounds, watermark_us: int | None, lateness_us: int = 0) -> bool:
    return watermark_us is None or bounds[1] + lateness_us > watermark_us
