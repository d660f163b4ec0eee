"""Session rows on disk: all rows of a hash are written together, so the newest segment with a hash wins.

A segment of sessions has one section, whose number is the latest last time in it (after a compaction, at
least that): a segment dies as a whole once that is dead. What a dead segment stood for is dead in older
ones too, because every older session of a hash lies inside a newer one, or had closed before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headrace.errors import TryAgain
from headrace.kernels.sessions.rows import among, newest_order
from headrace.row.arrays import U64
from headrace.row.chunks import REWRITE_ROWS
from headrace.row.run import Run
from headrace.store.append.merge import concatenated, range_parts
from headrace.store.base.files import Sections
from headrace.store.rows.take import rows_at
from headrace.store.segments.merge import Source, concatenate
from headrace.store.segments.reader import Segment, prepare
from headrace.store.segments.writer import write_segment
from headrace.store.sessions.layout import SessionLayout

ROWS = "rows"


def distinct(hashes: U64) -> U64:
    """The hashes in order, each once; `numpy.unique` hashes them and takes three times as long."""
    ordered = np.sort(hashes)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def sections_of(layout: SessionLayout, run: Run) -> Sections:
    """An ordered run that is not empty, as the sections of a segment."""
    return [(int(layout.lasts(run).max()), [run])]


def last_time(segment: Segment) -> int:
    """No session of the segment has a later last time."""
    return segment.last


def rows_of(layout: SessionLayout, segments: Sequence[Segment], hashes: U64) -> tuple[Run, U64]:
    """The newest rows of ordered, distinct hashes, and the hashes not found; `segments` newest first."""
    runs = []
    prepare([(segment, last_time(segment)) for segment in segments], hashes)
    for segment in segments:
        if not len(hashes):
            break
        run = segment.rows_of(last_time(segment), hashes)
        if len(run):
            runs.append(run)
            hashes = hashes[~among(hashes, run.order)]
    return concatenated(runs, layout.rows), hashes


def newest(
    layout: SessionLayout, segments: Sequence[Segment], chunk_rows: int = REWRITE_ROWS
) -> Iterator[Run]:
    """The newest rows of every hash as ordered runs; `segments` newest first."""
    variable = np.array(layout.rows.variable_words, np.int64)
    sources: list[Source] = [(segment, last_time(segment)) for segment in segments]
    for parts in range_parts(sources, layout.rows, chunk_rows):
        filled = [part for part in parts if len(part)]
        if not filled:
            continue
        together, bounds = concatenate(filled, variable)
        yield rows_at(together, newest_order(together.order, bounds))


def compact_sessions(
    layout: SessionLayout, segments: Sequence[Segment], path: Path, dead_through: int, stop: threading.Event
) -> bool:
    """Merge adjacent segments, oldest first, without dead rows; False, and no file, when all are dead."""
    alive = [segment for segment in segments if last_time(segment) > dead_through]
    if not alive:
        return False

    def runs() -> Iterator[Run]:
        for run in newest(layout, alive[::-1]):
            if stop.is_set():
                raise TryAgain("the compaction was stopped", hint="it starts again after the next commit")
            yield layout.where(run, layout.lasts(run) > dead_through)

    number = max(last_time(segment) for segment in alive)
    meta = write_segment(path, layout.rows.width, [(number, runs())], layout.rows.variable_words)
    if not meta.rows:
        path.unlink()
    return bool(meta.rows)
