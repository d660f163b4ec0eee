"""Compaction of the data log: which segments (`chosen`), and writing what is alive in them (`compact_log`).

A segment is *past* when no row of it could begin a session that is alive: what lives in it belongs to
sessions that have gone on for long. If all of that were dead, the log would be larger than its live rows by
`past / current`; beyond the maximum space amplification the past is read once and its live rows are written
anew, found in the same scan by the sessions that are alive.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from headrace.errors import TryAgain
from headrace.kernels.session_match import match
from headrace.store import session_rows
from headrace.store.aur_log import last_time
from headrace.store.compact import plan
from headrace.store.kept import I64, KeptLayout, ordered, taken
from headrace.store.kept_merge import by_range
from headrace.store.run import Run
from headrace.store.seal import write_segment
from headrace.store.segment import Segment
from headrace.store.session_layout import SessionLayout

SEGMENTS_MAX = 32  # each of them is asked when a session is read
ROWS_MIN = 4096  # a log this small is not worth it
CHUNK_ROWS = 1 << 15


def chosen(
    rows: Sequence[int], sizes: Sequence[int], past: Sequence[bool], rested: bool, amplification: float
) -> slice | None:
    """The segments to compact next, or None; all oldest first. `rested`: the past has aged since."""
    old = sum(count for count, is_past in zip(rows, past, strict=True) if is_past)
    current = sum(rows) - old
    if rested and old > (amplification - 1) * max(current, ROWS_MIN):
        return slice(0, max(at for at, is_past in enumerate(past) if is_past) + 1)
    return plan(sizes) if len(rows) > SEGMENTS_MAX else None


def sessions_of(sessions: SessionLayout, layout: KeptLayout, held: Run, rows: Run) -> I64:
    """The session of each row, or -1; both runs are ordered by hash."""
    width, kept = sessions.rows, layout
    nulls = min(width.null_words, kept.keys[0].word if kept.keys else 0)
    count = kept.key_width - nulls
    key = np.concatenate([np.arange(nulls), np.arange(width.null_words, width.null_words + count)])
    variable = np.isin(np.arange(kept.key_width), kept.variable_key_words)
    found: I64 = match(
        held.hashes, held.words, held.heap, key.astype(np.int64), sessions.first_word, sessions.last_word,
        rows.hashes, rows.words, rows.heap, np.arange(kept.key_width), kept.time_word, variable,
    )  # fmt: skip
    return found


def compact_log(
    sessions: SessionLayout,
    layout: KeptLayout,
    inputs: Sequence[Segment],
    metadata: Sequence[Segment],
    path: Path,
    dead_through: int,
    stop: threading.Event,
) -> bool:
    """Write the rows of live sessions into one segment; False, and no file, when there are none.

    `metadata` are the segments of all sessions of the same version, newest first.
    """

    def runs() -> Iterator[Run]:
        sources = [(segment, last_time(segment)) for segment in inputs]
        for run in by_range(sources, layout, CHUNK_ROWS):
            if stop.is_set():
                raise TryAgain("the compaction was stopped", hint="it starts again after the next commit")
            found, _ = session_rows.rows_of(sessions, metadata, session_rows.distinct(run.hashes))
            alive = sessions.where(found, sessions.lasts(found) > dead_through)
            yield taken(layout, run, sessions_of(sessions, layout, ordered(alive), run) >= 0)

    number = max(last_time(segment) for segment in inputs)
    meta = write_segment(path, layout.width, [(number, runs())], layout.variable_words)
    if not meta.rows:
        path.unlink()
    return bool(meta.rows)
