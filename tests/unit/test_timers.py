"""Protects what timers lead to: every session that ends is found, and one that has grown since is not
looked for again, as far as newer timers tell."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from headrace.store.segments.file import SegmentFile
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import write_segment
from headrace.store.sessions import timers

GAP = 1000


def segment_of(path: Path, ends: dict[int, int]) -> Segment:
    """One epoch's timers: the end of each hash's session."""
    columns = np.array(list(ends.values()), np.int64), np.array(list(ends), np.uint64)
    shape = timers.TimerShape()
    write_segment(path, shape.width, [(timers.SECTION, [timers.timers_of(*columns)])], ())
    return SegmentFile.open(path, shape.width, (), kind=timers.TIMERS)


def due_hashes(segments: list[Segment], after: int, through: int, chunk: int = 64) -> list[int]:
    return [
        one for due in timers.due(segments, after, through, chunk_rows=chunk) for one in due.hashes.tolist()
    ]


def test_only_the_newest_end_of_a_hash_counts(tmp_path: Path) -> None:
    old = segment_of(tmp_path / "a", {1: 10, 2: 11, 3: 12})
    new = segment_of(tmp_path / "b", {2: 500, 3: 12})
    assert due_hashes([old, new], 0, 100) == [1, 3]
    assert due_hashes([old, new], 0, 1000) == [1, 2, 3]
    assert due_hashes([new], 0, 100) == [3]


def test_what_comes_is_told_without_ends_of_the_past(tmp_path: Path) -> None:
    old = segment_of(tmp_path / "a", {1: 10, 2: 11})
    new = segment_of(tmp_path / "b", {2: 500})
    ((ends, hashes),) = timers.coming([old, new], 5, 10)
    assert dict(zip(hashes.tolist(), ends.tolist(), strict=True)) == {1: 10, 2: 500}


@pytest.mark.parametrize("seed", range(4))
def test_no_session_that_ends_is_lost(tmp_path: Path, seed: int) -> None:
    """Sessions grow at random for many epochs; timers of epochs are merged now and then."""
    random = np.random.default_rng(seed)
    last: dict[int, int] = {}
    segments: list[Segment] = []
    stale = mark = 0
    for epoch in range(30):
        now = epoch * 300
        touched = random.choice(200, 60, replace=False).tolist()
        last.update({one: now + int(random.integers(300)) for one in touched})
        before, mark = mark, max(0, now - 200)
        ended = {one for one, time in last.items() if before < time + GAP <= mark}
        fresh = segment_of(tmp_path / f"now{epoch}", {one: last[one] + GAP for one in touched})
        got = due_hashes([*segments, fresh], before, mark, 16)
        assert ended <= set(got)
        stale += len(set(got) - ended)
        alive = {one: last[one] + GAP for one in touched if last[one] + GAP > mark}
        segments.append(segment_of(tmp_path / f"e{epoch}", alive))
        if epoch % 7 == 6:
            segments = merged(segments, tmp_path / f"m{epoch}", mark)
    assert stale < 200  # of about 1,500 timers


def merged(segments: list[Segment], path: Path, mark: int) -> list[Segment]:
    """The oldest half as one segment."""
    half = len(segments) // 2
    if not timers.compact_timers(segments[:half], path, mark, threading.Event()):
        return segments[half:]
    return [SegmentFile.open(path, 1, (), kind=timers.TIMERS), *segments[half:]]
