"""Where windows begin and end among the rows of each key in their order. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.kernels.groups.group import sort_rows
from headrace.plan.spec import Window
from headrace.row.arrays import I64, U64, Flags


@dataclass(frozen=True)
class Cut:
    """Rows of whole windows, window after window, and the rows that wait on, by group."""

    rows: I64  # numbers of rows; in several windows, if these overlap
    window_of: I64  # of each of them
    kept: I64
    kept_offsets: I64


def in_order(of_row: I64, groups: int, keys: Sequence[U64]) -> tuple[I64, I64]:
    """Row numbers by group and key, the last key first in importance; where each group begins."""
    order, offsets = sort_rows(of_row, groups, np.arange(len(of_row)), np.stack(keys))
    return order, offsets


def cut(window: Window, order: I64, offsets: I64, marked: Flags) -> Cut:
    """Cuts the rows of each group into windows; `marked` flags the markers among the ordered rows."""
    counts = np.diff(offsets)
    if window.marker is None:
        return _counted(window.count, window.step, order, offsets, counts)
    return _marked(order, offsets, counts, marked)


def _counted(many: int, step: int, order: I64, offsets: I64, counts: I64) -> Cut:
    """Windows of `many` rows; the first row of a group begins the oldest open window."""
    windows = np.where(counts >= many, (counts - many) // step + 1, 0)
    group = np.repeat(np.arange(len(counts)), windows)
    begins = offsets[group] + (np.arange(len(group)) - _before(windows)[group]) * step
    rows = (begins[:, None] + np.arange(many)[None, :]).reshape(-1)
    kept = _ranges(offsets[:-1] + windows * step, offsets[1:])
    offsets_kept = np.concatenate([[0], np.cumsum(counts - windows * step)])
    return Cut(order[rows], np.repeat(np.arange(len(group)), many), order[kept], offsets_kept)


def _marked(order: I64, offsets: I64, counts: I64, marked: Flags) -> Cut:
    """Windows that end with a marker; rows behind the last one of a group wait."""
    group = np.repeat(np.arange(len(counts)), counts)
    after = np.zeros(len(counts), np.int64)  # rows of the group up to its last marker
    at = np.flatnonzero(marked)
    after[group[at]] = at - offsets[group[at]] + 1
    whole = np.arange(len(order)) - offsets[group] < after[group]
    window = np.concatenate([[0], np.cumsum(marked)])[:-1]  # markers ahead of a row number its window
    kept = np.flatnonzero(~whole)
    kept_offsets = np.concatenate([[0], np.cumsum(counts - after)])
    return Cut(order[whole], window[whole], order[kept], kept_offsets)


def _before(counts: I64) -> I64:
    """The sum of the counts ahead of each."""
    total: I64 = np.cumsum(counts) - counts
    return total


def _ranges(begins: I64, ends: I64) -> I64:
    """All numbers of the ranges, one range after the other."""
    lengths = ends - begins
    numbers: I64 = np.repeat(begins - _before(lengths), lengths) + np.arange(int(lengths.sum()))
    return numbers
