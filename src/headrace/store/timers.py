"""Which sessions may end when: small rows ordered by time, so that a range of time is one read.

    timer = end of a session, biased (the order key) · hash (its only word)

A timer is written whenever its session is. It is a hint: the session may have grown or gone since, so what
it leads to is read and looked at. Of one session and one end there is one timer in a merge.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import TryAgain
from headrace.kernels.order import by_hash
from headrace.store.kept import time_bound, time_key
from headrace.store.kept_merge import range_parts
from headrace.store.merge import merge_runs
from headrace.store.run import U64, Run
from headrace.store.seal import write_segment
from headrace.store.segment import Segment
from headrace.store.session_rows import distinct

TIMERS = "timers"
SECTION = 0
CHUNK_ROWS = 1 << 15
CHUNK_ROWS_MIN = 1 << 10

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TimerShape:
    """A row of one word, the hash, which is its key too."""

    width: int = 1
    key_width: int = 1
    variable_words: tuple[int, ...] = ()
    variable_key_words: tuple[int, ...] = ()


@dataclass(frozen=True)
class Due:
    """Hashes of which some session may end in `[first_us, last_us]`: ordered, distinct."""

    hashes: U64
    first_us: int
    last_us: int


def timers_of(ends: I64, hashes: U64) -> Run:
    """An ordered run of timers."""
    keys = time_key(ends.view(np.uint64))
    order = by_hash(keys)
    return Run(keys[order], hashes[order].reshape(-1, 1), np.empty(0, np.uint8))


def due(
    segments: Sequence[Segment], after_us: int | None, through_us: int, chunk_rows: int = CHUNK_ROWS
) -> Iterator[Due]:
    """What may end in `(after_us, through_us]`, in the order of time; no time lies in two parts."""
    low = 0 if after_us is None else time_bound(after_us) + 1
    sources = [(segment, SECTION) for segment in segments]
    for runs in range_parts(sources, TimerShape(), chunk_rows, low, time_bound(through_us) + 1):
        run = merge_runs(runs, TimerShape())
        if len(run):
            first, last = time_of(int(run.hashes[0])), time_of(int(run.hashes[-1]))
            yield Due(distinct(run.words[:, 0]), first, last)


def coming(segments: Sequence[Segment], after_us: int, many: int) -> Iterator[tuple[I64, U64]]:
    """Ends after `after_us` and the hashes that they are of, in the order of time, about `many` at once.

    A session that grew since is there with its earlier ends too.
    """
    sources = [(segment, SECTION) for segment in segments]
    for runs in range_parts(sources, TimerShape(), max(many, CHUNK_ROWS_MIN), time_bound(after_us) + 1):
        run = merge_runs(runs, TimerShape())
        if len(run):
            yield time_key(run.hashes).view(np.int64), np.ascontiguousarray(run.words[:, 0])


def time_of(key: int) -> int:
    """The time of an order key."""
    return key - (1 << 63)


def last_end(segment: Segment) -> int:
    """The latest end that the segment's timers say."""
    return time_of(segment.sections[SECTION].max_hash)


def compact_timers(
    segments: Sequence[Segment], path: Path, after_us: int | None, stop: threading.Event
) -> bool:
    """Merge the timers after `after_us` into one segment; False, and no file, when there are none."""
    if after_us is not None and all(last_end(segment) <= after_us for segment in segments):
        return False
    low = 0 if after_us is None else time_bound(after_us) + 1

    def runs() -> Iterator[Run]:
        sources = [(segment, SECTION) for segment in segments]
        for parts in range_parts(sources, TimerShape(), CHUNK_ROWS, low):
            if stop.is_set():
                raise TryAgain("the compaction was stopped", hint="it starts again after the next commit")
            yield merge_runs(parts, TimerShape())

    shape = TimerShape()
    write_segment(path, shape.width, [(SECTION, runs())], shape.variable_words)
    return True
