"""Sections of a join's segments: one per side and bucket of time. Pure functions.

A section's number is the start of its bucket plus the side, so a bucket is at least two microseconds wide.
Without buckets the number is the side.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headrace.plan.columns import RIGHT
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.row.arrays import I64

BUCKET_MIN_US = 2


def section_of(work: StreamJoin, times_us: I64, sides: I64) -> I64:
    """The section of each row."""
    if not work.bucket_us:
        return sides
    return times_us - np.mod(times_us, work.bucket_us) + sides


def side_of(work: StreamJoin, section: int) -> int:
    return section % work.bucket_us if work.bucket_us else section


def times_of_section(work: StreamJoin, section: int) -> tuple[int, int] | None:
    """The first and the last time that rows of the section can have; None without buckets."""
    if not work.bucket_us:
        return None
    start = section - side_of(work, section)
    return start, start + work.bucket_us - 1


def is_dead(work: StreamJoin, section: int, watermark_us: int | None) -> bool:
    """Whether no row of the section is needed at that watermark."""
    if not work.is_stored(side_of(work, section)):
        return True
    times, keeps_us = times_of_section(work, section), work.keeps_us(side_of(work, section))
    if times is None or keeps_us is None or watermark_us is None:
        return False
    return times[1] + keeps_us <= watermark_us


def newest(work: StreamJoin, sections: Iterable[int]) -> int:
    """The newest section of the right side; its rows are the newest generation of a table."""
    return max((section for section in sections if side_of(work, section) == RIGHT), default=-1)


def overlapping(
    work: StreamJoin, sections: Iterable[int], side: int, first_us: int | None, last_us: int | None
) -> list[int]:
    """The sections of a side that can have rows of these times, in the order of time."""
    wanted = []
    for section in sorted(sections):
        if side_of(work, section) != side:
            continue
        times = times_of_section(work, section)
        if times is None or not _apart(times, first_us, last_us):
            wanted.append(section)
    return wanted


def _apart(times: tuple[int, int], first_us: int | None, last_us: int | None) -> bool:
    before = first_us is not None and times[1] < first_us
    return before or (last_us is not None and times[0] > last_us)
