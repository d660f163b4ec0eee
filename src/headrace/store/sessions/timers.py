"""Which sessions may end when: small rows ordered by time, so that a range of time is one read.

    timer = end of a session, biased (the order key) · hash [· when it is expected to end]

A timer is written whenever its session is, and all sessions of a hash are written together: of a hash that
is in several segments only the newest one's timers can still be true. The others are left out by looking
for their hashes in newer segments, where that is less work than looking for their sessions. What is left
is a hint: the session may have grown or gone since, so what it leads to is read and looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import TryAgain
from headrace.kernels.core.order import by_hash
from headrace.kernels.segments.newest import enter, overtake
from headrace.row.arrays import I64, U64
from headrace.row.chunks import REWRITE_ROWS
from headrace.row.run import Run
from headrace.store.append.merge import range_parts
from headrace.store.rows.kept_layout import time_bound, time_key
from headrace.store.segments.merge import concatenate, merge_runs
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.store.sessions.rows import distinct

TIMERS = "timers"
SECTION = 0
HASH_WORD = 0  # of a timer
DUE_ROWS = 1 << 17
COMING_ROWS_MIN = 1 << 10
NEWER_MANY = 24  # as many newer timers may be looked through per timer in question


@dataclass(frozen=True)
class TimerShape:
    """A row of one word, the hash, which is its key too; or of two, where the user predicts the end."""

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


PLAIN, EXPECTING = TimerShape(), TimerShape(width=2)


def timers_of(ends: I64, hashes: U64, expected: I64 | None = None) -> Run:
    """An ordered run of timers."""
    keys = time_key(ends.view(np.uint64))
    order = by_hash(keys)
    words = [hashes] if expected is None else [hashes, expected.view(np.uint64)]
    return Run(keys[order], np.stack([word[order] for word in words], axis=1), np.empty(0, np.uint8))


def due(
    segments: Sequence[Segment],
    after_us: int | None,
    through_us: int,
    shape: TimerShape = PLAIN,
    chunk_rows: int = DUE_ROWS,
) -> Iterator[Due]:
    """What may end in `(after_us, through_us]`, in the order of time; no time lies in two parts.

    `segments` oldest first.
    """
    low = 0 if after_us is None else time_bound(after_us) + 1
    for run in _current(segments, low, time_bound(through_us) + 1, shape, chunk_rows):
        if len(run):
            ends = time_key(run.order).view(np.int64)
            yield Due(distinct(run.words[:, 0]), int(ends.min()), int(ends.max()))


def coming(
    segments: Sequence[Segment], after_us: int, many: int, shape: TimerShape = PLAIN
) -> Iterator[tuple[I64, U64]]:
    """Sessions that end after `after_us`: when they are expected to, and their hashes.

    About `many` at once, nearer ends first.
    """
    rows = max(many, COMING_ROWS_MIN)
    for run in _current(segments, time_bound(after_us) + 1, 1 << 64, shape, rows, newer_many=1 << 62):
        expected = time_key(run.order) if shape == PLAIN else run.words[:, 1]
        yield np.ascontiguousarray(expected).view(np.int64), np.ascontiguousarray(run.words[:, 0])


def _current(
    segments: Sequence[Segment],
    low: int,
    high: int,
    shape: TimerShape,
    chunk_rows: int,
    newer_many: int = NEWER_MANY,
) -> Iterator[Run]:
    """The timers in a range of order keys, without those known to be of the past."""
    sources = [(segment, SECTION) for segment in segments]
    for runs in range_parts(sources, shape, chunk_rows, low, high):
        if not any(len(run) for run in runs):
            continue
        together, bounds = concatenate(runs, np.empty(0, np.int64))
        hashes = np.ascontiguousarray(together.words[:, 0])
        first = int(together.order.min())
        numbers = np.repeat(np.arange(len(runs)), np.diff(bounds))
        kept = _true_yet(segments, hashes, numbers, first, shape, newer_many)
        yield Run(together.order[kept], together.words[kept], together.heap)


def _true_yet(
    segments: Sequence[Segment], hashes: U64, numbers: I64, low: int, shape: TimerShape, newer_many: int
) -> npt.NDArray[np.bool_]:
    """Which timers no newer segment speaks against; `numbers` are the places of their segments.

    A newer segment with the hash has it at the same end or later, so not before `low`, the first end.
    """
    slots: I64 = np.full(1 << (2 * len(hashes)).bit_length(), -1, np.int64)
    same, newest = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
    enter(hashes, numbers, slots, same, newest)
    counts = [segment.count_range(SECTION, low, 1 << 64) for segment in segments]
    if sum(counts) <= newer_many * len(hashes):
        for number, segment in enumerate(segments):
            if number == 0 or not counts[number]:
                continue
            for (run,) in range_parts([(segment, SECTION)], shape, DUE_ROWS, low):
                overtake(np.ascontiguousarray(run.words[:, 0]), number, hashes, slots, newest)
    is_newest: npt.NDArray[np.bool_] = numbers == newest[same]
    return is_newest


def time_of(key: int) -> int:
    """The time of an order key."""
    return key - (1 << 63)


def last_end(segment: Segment) -> int:
    """The latest end among the segment's timers."""
    return time_of(segment.sections[SECTION].max_hash)


def compact_timers(
    segments: Sequence[Segment],
    path: Path,
    after_us: int | None,
    stop: threading.Event,
    shape: TimerShape = PLAIN,
) -> bool:
    """Merge the timers after `after_us` into one segment; False, and no file, when there are none."""
    if after_us is not None and all(last_end(segment) <= after_us for segment in segments):
        return False
    low = 0 if after_us is None else time_bound(after_us) + 1

    def runs() -> Iterator[Run]:
        sources = [(segment, SECTION) for segment in segments]
        for parts in range_parts(sources, shape, REWRITE_ROWS, low):
            if stop.is_set():
                raise TryAgain("the compaction was stopped", hint="it starts again after the next commit")
            yield merge_runs(parts, shape)

    write_segment(path, shape.width, [(SECTION, runs())], shape.variable_words)
    return True
