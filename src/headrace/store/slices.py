"""Cutting rows into slices: which window each row belongs to, and which rows are late. Pure functions.

A slice is the start of a tumbling window in microseconds; without a window all rows are of slice 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.spec import TIME, Window

WHOLE = 0  # the only slice of an operator without a window

I64 = npt.NDArray[np.int64]


def end_of(slice_us: int, window: Window | None) -> int | None:
    """When the slice's window ends; None: never."""
    return None if window is None else slice_us + window.width_us


def is_closed(slice_us: int, window: Window | None, watermark_us: int | None) -> bool:
    """Whether the watermark has passed the slice's window."""
    end = end_of(slice_us, window)
    return end is not None and watermark_us is not None and end <= watermark_us


def starts(times_us: I64, window: Window) -> I64:
    """The window start of each event time."""
    return times_us - np.mod(times_us - window.offset_us, window.width_us)


def times_of(rows: pa.RecordBatch) -> I64:
    """Event times in microseconds; null times are zero (callers that care look at validity)."""
    times = rows.column(rows.schema.get_field_index(TIME)).cast(pa.int64())
    values: I64 = times.fill_null(0).to_numpy(zero_copy_only=False)
    return values


def cut(
    rows: pa.RecordBatch, window: Window | None, watermark_us: int | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows by slice, leaving out rows whose window the watermark has closed."""
    if window is None:
        yield WHOLE, rows
        return
    of_row = starts(times_of(rows), window)
    if watermark_us is not None and len(of_row) and of_row.min() + window.width_us <= watermark_us:
        timely = of_row + window.width_us > watermark_us
        rows, of_row = rows.filter(pa.array(timely)), of_row[timely]
    yield from _grouped(rows, of_row)


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
