"""Combinations of adjacent slices, kept for the windows to come: a window shares most slices with the last.

Slices are the leaves of a tree in which a node stands for `FAN` nodes below it, so a window of n slices is
about 2 log n nodes. A fast path only: leaving any node out changes the work and nothing else.
Invariants: a node is what its slices hold right now, because a slice that takes a row drops its nodes.
`nbytes` is the sum over nodes, which are the first to go when memory is short.
Threads: the store's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.plan.spec import Window
from headrace.row.layout import RowLayout
from headrace.store.fold.panes import HASHES, Pane
from headrace.store.tables.table import Table

FAN = 4
SLICES_MIN = 8  # windows of fewer slices are combined from them: nodes would not be used often enough
PanesOfSlices = Mapping[int, Sequence[Pane]]


class Partials:
    """The nodes above the slices of one window."""

    def __init__(self, layout: RowLayout, window: Window | None) -> None:
        self._layout = layout
        self._window = window or Window(1)
        slices = self._window.width_us // self._window.slice_us
        self._levels = 0
        while slices >= SLICES_MIN and FAN ** (self._levels + 1) <= slices:
            self._levels += 1
        self.nodes: dict[tuple[int, int], Table] = {}
        self.nbytes = 0

    def forget(self, slice_us: int) -> None:
        """The slice has changed, or is gone."""
        for level in range(1, self._levels + 1):
            node = self.nodes.pop((level, slice_us - self._past_start(slice_us, level)), None)
            self.nbytes -= 0 if node is None else node.nbytes

    def clear(self) -> None:
        self.nodes.clear()
        self.nbytes = 0

    def pieces(self, start_us: int, of_slice: PanesOfSlices, bytes_max: int) -> list[Pane]:
        """The window's slices, as few panes as nodes allow; new nodes are kept up to `bytes_max` in all."""
        at, end, panes = start_us, start_us + self._window.width_us, list[Pane]()
        while at < end:
            level = self._largest(at, end)
            panes += self._piece(level, at, of_slice, bytes_max)
            at += self._span(level)
        return panes

    def _span(self, level: int) -> int:
        return self._window.slice_us * int(FAN**level)

    def _past_start(self, slice_us: int, level: int) -> int:
        """How far into its node a slice lies."""
        return (slice_us - self._window.offset_us) % self._span(level)

    def _largest(self, at: int, end: int) -> int:
        """The level of the largest node that begins at a slice and does not pass the end."""
        level = 0
        while (
            level < self._levels
            and at + self._span(level + 1) <= end
            and not self._past_start(at, level + 1)
        ):
            level += 1
        return level

    def _piece(self, level: int, at: int, of_slice: PanesOfSlices, bytes_max: int) -> list[Pane]:
        if level == 0:
            return [*of_slice.get(at, ())]
        node = self.nodes.get((level, at))
        if node is not None:
            return [Pane(at, node, ())]
        below = range(at, at + self._span(level), self._span(level - 1))
        parts = [part for child in below for part in self._piece(level - 1, child, of_slice, bytes_max)]
        if len(parts) < 2 or self.nbytes + sum(part.nbytes for part in parts) > bytes_max:
            return parts
        node = self.nodes[level, at] = Table(self._layout, max(part.rows for part in parts))
        for part in parts:
            node.absorb(part.read(0, HASHES))
        self.nbytes += node.nbytes
        return [Pane(at, node, ())]
