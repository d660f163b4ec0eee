"""Byte ranges of a file as pure arithmetic over arrays: units, gaps, requests.

A unit is the smallest part of a file that is present or absent. Ranges are pairs of arrays, `starts` and
`ends`, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from headrace.row.arrays import I64

UNIT_BYTES = 4096
REQUEST_BYTES = 1 << 20  # a longer range is several requests, which run in parallel


def units_of(starts: I64, ends: I64) -> I64:
    """The units that ordered ranges touch, each once, in order."""
    firsts, lasts = starts // UNIT_BYTES, np.maximum(-(-ends // UNIT_BYTES), starts // UNIT_BYTES)
    counts = lasts - firsts
    before = np.repeat(np.cumsum(counts) - counts, counts)
    units: I64 = np.unique(
        np.arange(int(counts.sum()), dtype=np.int64) - before + np.repeat(firsts, counts)
    )
    return units


def requests(units: I64, gap_bytes: int, request_bytes: int = REQUEST_BYTES) -> tuple[I64, I64]:
    """Ranges of units `[first, end)`, one per request: small gaps are read too, long ranges are cut."""
    if not len(units):
        return units, units
    cuts = np.flatnonzero(np.diff(units) > 1 + gap_bytes // UNIT_BYTES) + 1
    firsts = units[np.concatenate([[0], cuts])]
    ends = units[np.concatenate([cuts - 1, [len(units) - 1]])] + 1
    return cut(firsts, ends, max(1, request_bytes // UNIT_BYTES))


class Sized(Protocol):
    """A range with its size."""

    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


def calls(ranges: Sequence[S], at_once: int, most: int = REQUEST_BYTES) -> list[list[S]]:
    """Ranges in groups, one per call: at most so many ranges and bytes, or one range alone."""
    groups: list[list[S]] = []
    left = 0
    for each in ranges:
        if not groups or len(groups[-1]) == at_once or each.nbytes > left:
            groups.append([])
            left = most
        groups[-1].append(each)
        left -= each.nbytes
    return groups


def all_units(firsts: I64, ends: I64) -> I64:
    """All units of ordered ranges that do not overlap."""
    counts = ends - firsts
    before = np.repeat(np.cumsum(counts) - counts, counts)
    units: I64 = np.arange(int(counts.sum()), dtype=np.int64) - before + np.repeat(firsts, counts)
    return units


def pieces(units: I64, firsts: I64, ends: I64) -> list[list[tuple[int, int]]]:
    """The runs of ordered units in each range."""
    low, high = np.searchsorted(units, firsts), np.searchsorted(units, ends)
    rows = zip(firsts.tolist(), ends.tolist(), low.tolist(), high.tolist(), strict=True)
    return [[(first, end)] if b - a == end - first else runs(units[a:b]) for first, end, a, b in rows]


def cut(firsts: I64, ends: I64, length: int) -> tuple[I64, I64]:
    """The same ranges in pieces of at most `length`."""
    pieces = np.maximum(-(-(ends - firsts) // length), 1)
    number = np.arange(int(pieces.sum()), dtype=np.int64) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(firsts, pieces) + number * length
    return starts, np.minimum(starts + length, np.repeat(ends, pieces))


def runs(units: I64) -> list[tuple[int, int]]:
    """Adjacent units together, as `(first, end)`."""
    if not len(units):
        return []
    edges = np.flatnonzero(np.diff(units) > 1)
    firsts, lasts = units[np.append(0, edges + 1)], units[np.append(edges, len(units) - 1)]
    return [(int(first), int(last) + 1) for first, last in zip(firsts, lasts, strict=True)]


def gap_bytes(latency_ms: float, bytes_per_ms: float, parallel: int) -> int:
    """The gap between two ranges below which one request is cheaper than two.

    `parallel` requests share the latency, so each costs a part of it.
    """
    return int(latency_ms * bytes_per_ms / max(1, parallel))
