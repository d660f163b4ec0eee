"""One fetch and its staged rows: the newest flushed rows of its hashes, and the hashes that have none.

Invariants: a hash answers once, and never after `forget`. The rows of a hash are those of the newest
segment that has any, so a key that is not among them may still be in an older one: that is a miss.
Threads: the reader fills it before `done` is set; afterwards the caller's lock guards it.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Protocol

import numpy as np

from headrace.kernels.segments.staged import positions, take_rows
from headrace.kernels.sessions.rows import among
from headrace.row.arrays import U64, Flags
from headrace.row.run import Run
from headrace.store.ahead.hints import Hints
from headrace.store.segments.reader import Answer, Segment


class Layout(Protocol):
    """The words of a row."""

    @property
    def width(self) -> int: ...
    @property
    def variable_key_words(self) -> tuple[int, ...]: ...
    @property
    def variable_words(self) -> tuple[int, ...]: ...


class Fetch:
    """The state of some hashes of one slice: on its way, then staged."""

    def __init__(self, slice_us: int, hints: Hints, begun_ms: float) -> None:
        self.slice_us, self.hashes, self.hints = slice_us, hints.hashes, hints
        self.alive: Flags = np.ones(len(hints), np.bool_)  # hashes that may still answer
        self.done = Event()
        self.ok = False  # whether its rows were read
        self.begun_ms, self.ended_ms = begun_ms, 0.0
        self.settled = 0  # commits since it began
        self.used: Flags = np.zeros(len(hints), np.bool_)  # alive until the commit
        self._present: Flags = np.zeros(len(hints), np.bool_)
        self._runs: list[Run] = []

    def read(self, segments: Sequence[Segment]) -> None:
        """Reads the rows of all hashes, newest segment first."""
        left = self.hashes
        for segment in segments:
            if not len(left):
                break
            run = segment.rows_of(self.slice_us, left)
            if len(run):
                self._runs.append(run)
                left = left[~among(left, run.order)]
        self._present = ~among(self.hashes, left)

    @property
    def nbytes(self) -> int:
        own = self.hashes.nbytes + self.hints.times.nbytes + self.hints.arrivals_ms.nbytes
        return own + 2 * len(self.hashes) + sum(run.nbytes for run in self._runs)

    def covers(self, hashes: U64) -> bool:
        """Whether it has, or will have, an answer for any of the ordered hashes."""
        return bool(among(self.hashes[self.alive], hashes).any())

    def forget(self, hashes: U64) -> int:
        """The hashes have newer rows, or are not needed any more; returns how many were alive."""
        gone = self.alive & among(self.hashes, hashes)
        self.alive &= ~gone
        return int(gone.sum())

    def answer(self, layout: Layout, answer: Answer) -> tuple[Flags, Flags]:
        """Adds the rows of keys that are staged.

        Returns the probes that have their answer, which may be that there is no row, and the hashes that
        were consulted.
        """
        at = positions(self.hashes, answer.probe.order)
        staged = (at >= 0) & self.alive[at]
        probe, variable_key = answer.probe, np.zeros(layout.width, np.bool_)
        variable_key[list(layout.variable_key_words)] = True
        variable = np.array(layout.variable_words, np.int64)
        for run in self._runs:
            answer.heap, answer.used = take_rows(
                probe.order, probe.words, probe.heap, variable_key, variable, staged,
                run.order, run.words, run.heap, answer.mask, answer.words, answer.heap, answer.used,
            )  # fmt: skip
        known: Flags = staged & (answer.mask | ~self._present[at])
        consulted: Flags = np.zeros(len(self.hashes), np.bool_)
        consulted[at[staged]] = True
        self.alive &= ~consulted
        return known, consulted
