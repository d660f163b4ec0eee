"""Background compaction: which adjacent segments to merge (`plan`), and merging them (`compact`).

Segments fall into tiers by size, each tier `RATIO` times the one below. Two rules keep the list short:

- a segment of a higher tier swallows the smaller ones just before it, so tiers fall from old to new;
- `FAN_IN` segments of one tier become one.

So at most `FAN_IN - 1` segments per tier remain (`FAN_IN_UNREAD - 1` while all rows are in memory). A merge
lifts what it reads to a higher tier (or removes rows that were written again), so a row is rewritten about
once or twice per tier: O(log state).

Segments whose rows are parts of groups (`plan_parts`) are not looked up, and their slices fill one after
another. Those of the slice that fills are merged by size. When the next one has begun they are merged once
more, if that makes enough one row of several for the windows that are still to read them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from headrace.errors import TryAgain
from headrace.row.run import Run
from headrace.store.segments.merge import Shape, Source, merge
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import SegmentMeta, write_segment

RATIO = 4
FAN_IN = 4
FAN_IN_UNREAD = 8  # of segments that nobody reads before a restart: merging them later is less work
BASE_BYTES = 1 << 18
WRITE_COST = 2  # to write a row costs about as much as to read so many
PARTS_MANY = 32  # more segments than this, and all of them are merged by size
Together = Callable[[Sequence[Source], int], Iterator[Run]]  # sources newest first, rows in memory; ordered

CHUNK_BYTES = 4 << 20  # what a merge holds of its inputs at a time


def tier(size: int, *, base: int = BASE_BYTES, ratio: int = RATIO) -> int:
    """0 up to `base` bytes, then one more for each factor of `ratio`."""
    number = 0
    while size > base:
        base *= ratio
        number += 1
    return number


def plan(
    sizes: Sequence[int], *, base: int = BASE_BYTES, ratio: int = RATIO, unread: bool = False
) -> slice | None:
    """The adjacent segments to merge next, or None; `sizes` in bytes, oldest first."""
    fan_in = FAN_IN_UNREAD if unread else FAN_IN
    tiers = [tier(size, base=base, ratio=ratio) for size in sizes]
    for newer in range(1, len(tiers)):
        if tiers[newer - 1] < tiers[newer]:
            return slice(_swallowed(sizes, tiers, newer), newer + 1)
    start = 0
    for end in range(1, len(tiers) + 1):
        if end == len(tiers) or tiers[end] != tiers[start]:
            if end - start >= fan_in:
                return slice(start, end)
            start = end
    return None


def plan_parts(
    parts: Sequence[Mapping[int, int]], sizes: Sequence[int], reads: Callable[[int], int]
) -> slice | None:
    """The same for segments of parts; `parts` has the rows of each slice, by segment, oldest first.

    `reads` returns how often the rows of a slice will be read; of the newest slices that is most.
    """
    runs = _of_one_slice(parts)
    for past in runs[-2::-1]:
        if worth_merging(parts[past], reads):
            return past
    filling = runs[-1] if runs and len(parts) <= PARTS_MANY else slice(0, len(parts))
    chosen = plan(sizes[filling], unread=True)
    return None if chosen is None else slice(filling.start + chosen.start, filling.start + chosen.stop)


def worth_merging(parts: Sequence[Mapping[int, int]], reads: Callable[[int], int]) -> bool:
    """Whether reading and writing these parts once costs less than what later reads are spared."""
    if len(parts) < 2:
        return False
    left = reads(_main_slice(parts[0]))
    return _saved(parts) * (left + WRITE_COST) >= 1 + WRITE_COST


def _of_one_slice(parts: Sequence[Mapping[int, int]]) -> list[slice]:
    """Neighbours that have most of their rows in the same slice."""
    main = [_main_slice(part) for part in parts]
    edges = [at for at in range(1, len(main)) if main[at] != main[at - 1]]
    return [slice(start, end) for start, end in pairwise([0, *edges, len(main)]) if start < end]


def _main_slice(part: Mapping[int, int]) -> int:
    """The slice that has most rows."""
    return max(part, key=part.__getitem__)


def _saved(parts: Sequence[Mapping[int, int]]) -> float:
    """Which part of the rows disappears in a merge, if a slice has the same keys in all of them."""
    rows: Counter[int] = Counter()
    kept: Counter[int] = Counter()
    for part in parts:
        rows.update(part)
        kept |= Counter(part)  # the larger of both
    return 1 - kept.total() / max(1, rows.total())


def _swallowed(sizes: Sequence[int], tiers: Sequence[int], newer: int) -> int:
    """The oldest segment to merge into `newer`: lower tiers, then whatever is no larger than the sum."""
    start, total = newer, sizes[newer]
    while start > 0 and (tiers[start - 1] < tiers[newer] or sizes[start - 1] <= total):
        start -= 1
        total += sizes[start]
    return start


def compact(
    segments: Sequence[Segment],
    path: str | Path,
    shape: Shape,
    live: Callable[[int], bool],
    stop: threading.Event | None = None,
    *,
    together: Together | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> SegmentMeta | None:
    """Merge adjacent segments, oldest first, into one at `path`, leaving out slices that are not live.

    `together` makes one row of those of a key; without it the newest counts.
    None, and no file, when nothing in them is live. Raises `TryAgain`, and leaves no file, once `stop` is
    set.
    """
    numbers = sorted({number for segment in segments for number in segment.sections if live(number)})
    if not numbers:
        return None
    together = together or partial(_newest, shape)
    bytes_per_row = sum(segment.size for segment in segments) // sum(segment.rows for segment in segments)
    chunk_rows = max(1, chunk_bytes // max(1, bytes_per_row))

    def sources(number: int) -> list[Source]:
        return [(segment, number) for segment in reversed(segments) if number in segment.sections]

    sections = ((number, _watched(together(sources(number), chunk_rows), stop)) for number in numbers)
    meta = write_segment(path, shape.width, sections, shape.variable_words)
    if not meta.rows:  # `together` left nothing
        Path(path).unlink()
        return None
    return meta


def _newest(shape: Shape, newest_first: Sequence[Source], chunk_rows: int) -> Iterator[Run]:
    return merge(newest_first, shape, chunk_rows)


def _watched(runs: Iterator[Run], stop: threading.Event | None) -> Iterator[Run]:
    for run in runs:
        if stop is not None and stop.is_set():
            raise TryAgain("the compaction was stopped", hint="it starts again after the next commit")
        yield run
