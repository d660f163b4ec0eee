"""Cutting time into slices: which slice a row belongs to, which windows a slice is part of. Pure functions.

A slice is named by its start in microseconds. Every fixed window is a row of whole slices, so a row is
kept once however many windows cover it; a tumbling window is one slice. Without a window there is slice 0.
A slice is closed when the last window that covers it is, its lateness included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from headrace.plan.spec import TIME, Window
from headrace.row.arrays import I64
from headrace.store.rows.arrow import column_of

WHOLE = 0  # the only slice of an operator without a window


def last_window(slice_us: int, window: Window) -> int:
    """The start of the latest window that covers the slice."""
    return slice_us - (slice_us - window.offset_us) % window.every_us


def is_closed(slice_us: int, window: Window | None, watermark_us: int | None) -> bool:
    """Whether the watermark has passed every window that covers the slice, for good."""
    if window is None or watermark_us is None:
        return False
    return last_window(slice_us, window) + window.width_us + window.lateness_us <= watermark_us


def windows_over(slice_us: int, window: Window) -> range:
    """The starts of the windows that cover the slice, oldest first."""
    last = last_window(slice_us, window)
    covering = -(-(last + window.width_us - slice_us) // window.every_us)
    return range(last - (covering - 1) * window.every_us, last + 1, window.every_us)


def slices_of(start_us: int, window: Window) -> range:
    """The slices of the window that starts there, oldest first."""
    return range(start_us, start_us + window.width_us, window.slice_us)


def windows_left(slice_us: int, window: Window, watermark_us: int | None) -> int:
    """How many windows over the slice are still to close."""
    starts = windows_over(slice_us, window)
    return sum(watermark_us is None or start + window.width_us > watermark_us for start in starts)


def closing(
    slices: Iterable[int], window: Window, before_us: int | None, watermark_us: int | None
) -> list[int]:
    """The windows over any of the slices that end in `(before_us, watermark_us]`, by their starts."""
    if watermark_us is None:
        return []
    windows = {start for slice_us in slices for start in windows_over(slice_us, window)}
    ended = sorted(start for start in windows if start + window.width_us <= watermark_us)
    return [start for start in ended if before_us is None or start + window.width_us > before_us]


def taking(slices: Iterable[int], window: Window, watermark_us: int | None) -> list[int]:
    """The windows over any of the slices that still take rows, by their starts: open or within lateness."""
    windows = {start for slice_us in slices for start in windows_over(slice_us, window)}
    through = window.width_us + window.lateness_us
    return sorted(start for start in windows if watermark_us is None or start + through > watermark_us)


def starts(times_us: I64, window: Window) -> I64:
    """The slice of each event time."""
    return times_us - np.mod(times_us - window.offset_us, window.slice_us)


def times_of(rows: pa.RecordBatch) -> I64:
    """Event times in microseconds; null times are zero (callers that care look at validity)."""
    column = column_of(rows.column(TIME), "timestamp")
    values: I64 = column.words[:, 0].view(np.int64)
    return np.where(column.valid, values, 0) if len(column.valid) else values


def cut(
    rows: pa.RecordBatch, window: Window | None, watermark_us: int | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows by slice, leaving out rows whose slice the watermark has closed."""
    if window is None:
        yield WHOLE, rows
        return
    of_row = starts(times_of(rows), window)
    if len(of_row) and watermark_us is not None and is_closed(int(of_row.min()), window, watermark_us):
        timely = _ends(of_row, window) > watermark_us
        rows, of_row = rows.filter(pa.array(timely)), of_row[timely]
    yield from _grouped(rows, of_row)


def _ends(slices: I64, window: Window) -> I64:
    """When the last window over each slice is closed for good."""
    last = slices - np.mod(slices - window.offset_us, window.every_us)
    return last + (window.width_us + window.lateness_us)


def _grouped(rows: pa.RecordBatch, of_row: I64) -> Iterator[tuple[int, pa.RecordBatch]]:
    if len(of_row) == 0:
        return
    if of_row[0] == of_row[-1] and (of_row == of_row[0]).all():
        yield int(of_row[0]), rows
        return
    order = np.argsort(of_row, kind="stable")
    bounds = np.flatnonzero(np.diff(of_row[order])) + 1
    for part in np.split(order, bounds):
        yield int(of_row[part[0]]), rows.take(pa.array(part))
