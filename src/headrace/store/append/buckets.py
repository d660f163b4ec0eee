"""Which windows are due, which buckets of rows share a file, which files are put together. Pure functions.

A bucket is what a store keeps together: all rows of a stretch of time that the same windows close. Kept
rows are cut into buckets of `bucket_us`, aligned with the windows, and deleted bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.plan.spec import Window
from headrace.row.arrays import I64
from headrace.store.rows.slices import closing, windows_over

FILE_BYTES = 64 << 10  # smaller buckets share a file with their neighbours in time
FILES_MAX = 64  # files of one bucket before they are put together
FILES_ALL_MAX = 512  # and of all buckets: every file is open


@dataclass(frozen=True)
class Due:
    """A window to emit: all its groups, or only those that this epoch's rows changed."""

    start_us: int
    changed_only: bool


def bucket_of(times_us: I64, window: Window, bucket_us: int) -> I64:
    """The bucket of each event time."""
    return times_us - np.mod(times_us - window.offset_us, bucket_us)


def closed_for_good_us(buckets: I64, window: Window) -> I64:
    """When the last window over each bucket takes no more rows."""
    last = buckets - np.mod(buckets - window.offset_us, window.every_us)
    return last + (window.width_us + window.lateness_us)


def due_windows(
    buckets: Iterable[int],
    touched: Iterable[int],
    window: Window,
    before_us: int | None,
    watermark_us: int | None,
) -> list[Due]:
    """The windows that a move of the watermark closes, and closed ones that late rows changed.

    `touched` are the buckets with rows of this epoch. A closed window takes rows until its lateness ends.
    """
    first = [Due(start, False) for start in closing(buckets, window, before_us, watermark_us)]
    if before_us is None or window.lateness_us == 0:
        return first
    over = {start for bucket in touched for start in windows_over(bucket, window)}
    again = [
        Due(start, True)
        for start in over
        if start + window.width_us <= before_us < start + window.width_us + window.lateness_us
    ]
    return sorted((*first, *again), key=lambda due: due.start_us)


def files_of(sizes: Sequence[int]) -> list[slice]:
    """How buckets, by size and in order of time, go into files: one each, small neighbours together."""
    files: list[slice] = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (total + size > FILE_BYTES):
            files.append(slice(start, index))
            start, total = index, 0
        total += size
    if start < len(sizes):
        files.append(slice(start, len(sizes)))
    return files


def crowd(buckets: Sequence[int], files_max: int = FILES_MAX, all_max: int = FILES_ALL_MAX) -> slice | None:
    """The files to put together, or None; `buckets` has each file's first bucket, equal ones adjacent.

    The files of a bucket come largest first, so the smallest ones are put together and a row is rewritten
    once for every factor of `files_max` in the number of files.
    """
    counts: dict[int, int] = {}
    for bucket in buckets:
        counts[bucket] = counts.get(bucket, 0) + 1
    fullest = max(counts, key=lambda bucket: counts[bucket], default=None)
    if fullest is None or counts[fullest] < 2:
        return None
    if counts[fullest] <= files_max and len(buckets) <= all_max:
        return None
    end = len(buckets) - list(buckets)[::-1].index(fullest)
    return slice(end - min(counts[fullest], files_max), end)
