"""The prefetch buffer: rows of sessions that are expected to end soon, read together with others.

Invariant: what it has of a hash are all rows that the hash had when it was read. Whether that is still all
of a session is for the reader to check: a session row counts its rows.
Threads: the partition's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.kernels.sessions.rows import among
from headrace.plan.reading import Reading
from headrace.row.arrays import I64, U64, Flags
from headrace.row.run import Run
from headrace.store.append.merge import concatenated, no_rows
from headrace.store.aur.resident import pick
from headrace.store.rows.kept_layout import KeptLayout, ordered, subset

AHEAD = 16  # as many times the sessions that end at once are read ahead, if that is more than the ratio


def many_ahead(reading: Reading, live: int, ending: int, bytes_max: int, bytes_of_one: int) -> int:
    """How many sessions to read ahead: by the ratio, and by rate also by how many end at once.

    By rate, none are read ahead if memory does not fit twice as many as end at once. What ends next is
    found by a scan of all timers, and each block would be read again for the next batch anyway.
    """
    if reading.ratio <= 0:
        return 0
    fit = bytes_max // max(1, bytes_of_one)
    if reading.by == "share":
        return min(int(reading.ratio * live), fit)
    return 0 if fit < 2 * ending else min(max(int(reading.ratio * live), AHEAD * ending), fit)


def soonest(ends: I64, many: int, at_least: int, seen_us: int | None) -> I64:
    """Which sessions to read ahead: the `many` that end first, as far as they are sure to end.

    Event time has passed the ends up to `seen_us`: only rows out of order can still put those off. Later
    ones may well grow, so of them no more are read than make up `at_least`.
    """
    order: I64 = np.argsort(ends, kind="stable")[:many]
    sure = len(order) if seen_us is None else int(np.searchsorted(ends[order], seen_us, "right"))
    return order[: max(sure, min(at_least, len(order)))]


@dataclass
class PrefetchBuffer:
    """Rows by hash."""

    layout: KeptLayout

    in_vain: int = 0  # hashes that were read ahead and not used: they grew, or had to make room

    def __post_init__(self) -> None:
        self._run = no_rows(self.layout)

    @property
    def nbytes(self) -> int:
        return self._run.nbytes

    def rows_of(self, hashes: U64) -> Run:
        """What is here of ordered, distinct hashes, ordered by hash."""
        return pick(self._run, hashes)

    def __len__(self) -> int:
        """How many hashes it has rows of."""
        return hashes_in(self._run)

    def lacks(self, hashes: U64) -> Flags:
        """Of which hashes nothing is here."""
        places = np.searchsorted(self._run.order, hashes)
        orders = np.append(self._run.order, np.uint64(0))[places]
        lacking: Flags = (orders != hashes) | (places == len(self._run))
        return lacking

    def drop(self, hashes: U64, grown: U64) -> None:
        """These, in order, were used; of those that have grown, what is here was read in vain."""
        self.in_vain += int(np.count_nonzero(~self.lacks(grown)))
        kept = ~among(self._run.order, hashes)
        if not kept.all():
            self._run = subset(self.layout, self._run, kept)

    def put(self, run: Run, bytes_max: int) -> int:
        """Adds rows of new hashes as far as whole hashes fit; returns the number of hashes added."""
        fit = _rows_that_fit(run, max(0, bytes_max - self.nbytes))
        if not fit:
            return 0
        part = subset(self.layout, run, slice(0, fit))
        self._run = ordered(concatenated([self._run, part], self.layout))
        return hashes_in(part)

    def clear(self) -> None:
        self.in_vain += len(self)
        self._run = no_rows(self.layout)


def hashes_in(run: Run) -> int:
    """How many hashes an ordered run has."""
    return int(np.count_nonzero(np.diff(run.order))) + 1 if len(run) else 0


def _rows_that_fit(run: Run, bytes_max: int) -> int:
    """How many rows from the first on take no more than that, ending where a hash does."""
    if run.nbytes <= bytes_max:
        return len(run)
    rows = len(run) * bytes_max // run.nbytes
    return int(np.searchsorted(run.order, run.order[rows], "left"))
