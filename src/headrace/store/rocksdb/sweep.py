"""How each kind of rows lies in RocksDB, and which rows of it are dead while their section lives on.

Segments of sessions and of their log have one section each, numbered by its latest time: whole files
die. RocksDB has no such files: all their rows lie together, and a sweep takes out what is dead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.plan.spec import OperatorSpec
from headrace.row.arrays import Flags
from headrace.row.run import Run
from headrace.store.aur.compact import sessions_of
from headrace.store.aur.log import LOGS
from headrace.store.base.files import FileKind
from headrace.store.rows.kept_layout import KeptLayout, ordered
from headrace.store.segments.reader import Segment
from headrace.store.sessions import rows as session_rows
from headrace.store.sessions.layout import SessionLayout
from headrace.store.sessions.timers import TIMERS


@dataclass(frozen=True)
class Habit:
    """What is special about a kind of rows."""

    dated: bool = False  # a segment has one section, whose number is only its latest time
    whole: bool = False  # rows of one order key are written together: the newest flush has all of them
    expires: bool = False  # order keys are times, and those at or before the watermark are dead


def habit_of(spec: OperatorSpec, kind: FileKind) -> Habit:
    """The habit of one kind of the operator's rows."""
    if spec.window is None or not spec.window.session:
        return Habit()
    if kind.name == TIMERS:
        return Habit(expires=True)
    return Habit(dated=True, whole=kind.name not in LOGS)


def alive(
    spec: OperatorSpec, kind: FileKind, run: Run, sessions: list[Segment], watermark_us: int | None
) -> Flags:
    """Which rows of an ordered run of a dated kind may still be needed; `sessions` has all session rows."""
    layout = SessionLayout(spec)
    dead_through = layout.dead_through(watermark_us)
    if kind.name not in LOGS:
        living: Flags = layout.lasts(run) > dead_through
        return living
    rows, _ = session_rows.rows_of(layout, sessions, np.unique(run.order))
    live = ordered(layout.where(rows, layout.lasts(rows) > dead_through))
    of_row: Flags = sessions_of(layout, KeptLayout(spec), live, run) >= 0
    return of_row
