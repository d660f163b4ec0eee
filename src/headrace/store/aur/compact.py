"""Compaction of the data log: which segments (`chosen`), and writing what is alive (`LogCompaction`).

A segment is *past* when no row of it could begin a session that is alive: what lives in it belongs to
sessions that have gone on for long. Beyond the maximum space amplification the past is read once and its
live rows are written anew, found in the same scan by the sessions that are alive. Sessions in memory
count the rows that are alive; without them all of the past might be dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.errors import TryAgain
from headrace.kernels.sessions.match import match
from headrace.row.arrays import I64, Flags
from headrace.row.chunks import REWRITE_ROWS
from headrace.row.run import Run
from headrace.store.append.merge import concatenated, range_parts
from headrace.store.rows.kept_layout import KeptLayout, ordered, subset
from headrace.store.segments.compact import plan
from headrace.store.segments.merge import Source
from headrace.store.segments.reader import Segment
from headrace.store.segments.writer import SegmentMeta, write_segment
from headrace.store.sessions import rows as session_rows
from headrace.store.sessions.layout import SessionLayout

SEGMENTS_MAX = 32  # each of them is read when a session is read
SEGMENTS_HELD_MAX = 64  # of a log in memory
INPUTS_MAX = 32  # of one compaction because of their number: the rest can wait, and batches go on beside it
ROWS_MIN = 4096  # a log this small is not worth it


@dataclass(frozen=True)
class Alive:
    """Which of some rows of the log belong to live sessions, or may do."""

    of: Callable[[Run], Flags]
    in_order: bool  # whether it must be read in the order of hashes


def chosen(
    rows: Sequence[int],
    sizes: Sequence[int],
    past: Sequence[bool],
    rested: bool,
    amplification: float,
    live: int | None = None,
    segments_max: int = SEGMENTS_MAX,
) -> slice | None:
    """The segments to compact next, or None; all oldest first.

    `rested`: the past has aged since. `live`: how many rows are alive, where that is known.
    """
    total, old = sum(rows), sum(count for count, is_past in zip(rows, past, strict=True) if is_past)
    alive = total - old if live is None else max(live, total - old)
    if rested and total > alive + (amplification - 1) * max(alive, ROWS_MIN):
        return slice(0, max(at for at, is_past in enumerate(past) if is_past) + 1)
    picked = plan(sizes) if len(rows) > segments_max else None
    return None if picked is None else slice(picked.start, min(picked.stop, picked.start + INPUTS_MAX))


def sessions_of(sessions: SessionLayout, layout: KeptLayout, live: Run, rows: Run) -> I64:
    """The session of each row, or -1; both runs are ordered by hash."""
    width, kept = sessions.rows, layout
    nulls = min(width.null_words, kept.keys[0].word if kept.keys else 0)
    count = kept.key_width - nulls
    key = np.concatenate([np.arange(nulls), np.arange(width.null_words, width.null_words + count)])
    variable = np.isin(np.arange(kept.key_width), kept.variable_key_words)
    places: I64 = match(
        live.order, live.words, live.heap, key.astype(np.int64), sessions.match_word, sessions.last_word,
        rows.order, rows.words, rows.heap, np.arange(kept.key_width), kept.match_word, variable,
    )  # fmt: skip
    return places


def stored_alive(
    sessions: SessionLayout, layout: KeptLayout, segments: Sequence[Segment], dead_through: int
) -> Alive:
    """Rows are alive by the session rows of `segments`, newest first, all of the same version."""

    def alive(run: Run) -> Flags:
        rows, _ = session_rows.rows_of(sessions, segments, session_rows.distinct(run.order))
        live = sessions.where(rows, sessions.lasts(rows) > dead_through)
        flags: Flags = sessions_of(sessions, layout, ordered(live), run) >= 0
        return flags

    return Alive(alive, in_order=True)


@dataclass(frozen=True)
class LogCompaction:
    """One compaction of the log: where its rows are, their latest time, and which of them live."""

    layout: KeptLayout
    sources: Sequence[Source]
    last_us: int
    alive: Alive

    def write(self, path: Path, stop: threading.Event, written: list[Run] | None) -> SegmentMeta | None:
        """Write the rows of live sessions into one segment; None, and no file, when there are none.

        What it wrote is added to `written`, if that is given.
        """

        def runs() -> Iterator[Run]:
            for parts in range_parts(self.sources, self.layout, REWRITE_ROWS):
                if stop.is_set():
                    raise TryAgain(
                        "the compaction was stopped", hint="it starts again after the next commit"
                    )
                run = concatenated(parts, self.layout)
                parts.clear()
                kept = self._living(run)
                if written is not None:
                    written.append(kept)
                yield kept

        sections = [(self.last_us, runs())]
        meta = write_segment(path, self.layout.width, sections, self.layout.variable_words)
        if not meta.rows:
            path.unlink()
        return meta if meta.rows else None

    def _living(self, run: Run) -> Run:
        """The rows that live, ordered; dead ones are left out first, where that may be."""
        if self.alive.in_order:
            run = ordered(run)
        return ordered(subset(self.layout, run, self.alive.of(run)))
