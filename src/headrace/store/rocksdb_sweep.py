"""How each kind of rows lies in RocksDB, and which rows of it are dead while their section lives on.

Segments of sessions and of their log have one section each, numbered by its latest time: whole files
die. RocksDB has no such files: all their rows lie together, and a sweep takes out what is dead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.kernels.lookup import Mask
from headrace.spec import OperatorSpec
from headrace.store import session_rows
from headrace.store.aur_compact import sessions_of
from headrace.store.aur_log import LOGS
from headrace.store.contract import FileKind
from headrace.store.kept import KeptLayout, ordered
from headrace.store.run import Run
from headrace.store.segment import Segment
from headrace.store.session_layout import SessionLayout
from headrace.store.timers import TIMERS


@dataclass(frozen=True)
class Habit:
    """What is special about a kind of rows."""

    dated: bool = False  # a segment has one section, whose number is only its latest time
    whole: bool = False  # rows of one order key are written together: the newest seal has all of them
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
) -> Mask:
    """Which rows of an ordered run of a dated kind may still be wanted; `sessions` has all session rows."""
    layout = SessionLayout(spec)
    dead_through = layout.dead_through(watermark_us)
    if kind.name not in LOGS:
        living: Mask = layout.lasts(run) > dead_through
        return living
    found, _ = session_rows.rows_of(layout, sessions, np.unique(run.hashes))
    held = ordered(layout.where(found, layout.lasts(found) > dead_through))
    of_row: Mask = sessions_of(layout, KeptLayout(spec), held, run) >= 0
    return of_row
