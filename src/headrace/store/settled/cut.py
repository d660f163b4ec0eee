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


def cut(window: Window, order: I64, offsets: I64, lasts: Flags) -> Cut:
    """Cuts the rows of each group into windows; `lasts` flags the last rows of sessions."""
    counts = np.diff(offsets)
    if window.marker is None:
        return _counted(window.count, window.step, order, offsets, counts)
    return _up_to(order, offsets, counts, lasts)


def silent_after(gap_us: int, times_us: I64, offsets: I64, watermark_us: int) -> Flags:
    """Which of the ordered rows no row of their group follows within the gap."""
    ends = times_us + gap_us
    nexts = np.append(times_us[1:], 0)
    last = np.zeros(len(times_us), np.bool_)
    last[offsets[1:][np.diff(offsets) > 0] - 1] = True
    silent: Flags = np.where(last, ends <= watermark_us, nexts > ends)
    return silent


def _counted(many: int, step: int, order: I64, offsets: I64, counts: I64) -> Cut:
    """Windows of `many` rows; the first row of a group begins the oldest open window."""
    windows = np.where(counts >= many, (counts - many) // step + 1, 0)
    group = np.repeat(np.arange(len(counts)), windows)
    begins = offsets[group] + (np.arange(len(group)) - _before(windows)[group]) * step
    rows = (begins[:, None] + np.arange(many)[None, :]).reshape(-1)
    kept = _ranges(offsets[:-1] + windows * step, offsets[1:])
    offsets_kept = np.concatenate([[0], np.cumsum(counts - windows * step)])
    return Cut(order[rows], np.repeat(np.arange(len(group)), many), order[kept], offsets_kept)


def _up_to(order: I64, offsets: I64, counts: I64, lasts: Flags) -> Cut:
    """Windows that end with a last row; rows behind the last one of a group wait."""
    group = np.repeat(np.arange(len(counts)), counts)
    after = np.zeros(len(counts), np.int64)  # rows of the group in whole windows
    at = np.flatnonzero(lasts)
    after[group[at]] = at - offsets[group[at]] + 1
    whole = np.arange(len(order)) - offsets[group] < after[group]
    window = np.concatenate([[0], np.cumsum(lasts)])[:-1]  # last rows ahead of a row number its window
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
