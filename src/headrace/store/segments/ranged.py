"""A segment of which only the rows with order keys in a range count, whatever they are ordered by.

Threads: as those of the segment.
"""

from __future__ import annotations

from headrace.plan.partitions.groups import ALL_GROUPS
from headrace.store.segments.clip import ClippedSegment
from headrace.store.segments.reader import Segment


class RangedSegment(ClippedSegment):
    """The rows of a segment with order keys in `[low, high)`; `high` may be 2**64."""

    def __init__(self, whole: Segment, low: int, high: int) -> None:
        super().__init__(whole, ALL_GROUPS, whole.rows)
        self._low, self._high = low, high
