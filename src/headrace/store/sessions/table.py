"""The sessions in memory: a table whose keys end with an ordinal.

Invariants, beyond those of `Table`: all rows of one hash are here or none is; they become dirty together,
and leave together. Live sessions of a key do not touch.
Threads: one at a time, the partition's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace.kernels.sessions import match as session_match
from headrace.kernels.sessions import scan as session_scan
from headrace.kernels.sessions import session as kernel
from headrace.kernels.tables.table import COUNT, DIRTY, EPOCH
from headrace.row.arrays import I64, U64, Flags, Ids
from headrace.row.run import Run
from headrace.store.sessions.layout import SessionLayout
from headrace.store.tables.table import Table


@dataclass(frozen=True)
class Stretches:
    """Rows of one key each that touch one another: by key, then by time; a key is a number."""

    groups: I64
    begins: I64
    ends: I64
    counts: I64


class SessionTable(Table):
    """Find, merge, fold and hand out sessions."""

    crowd = 1 << 62  # the rows of a hash stay together: they are enumerated from its slot on

    def __init__(self, layout: SessionLayout) -> None:
        super().__init__(layout.rows)
        self.sessions = layout
        hidden, self._folds = self._folds[-3:], self._folds[:-3]  # `place` does what is hidden, by stretch
        first, last, changed = hidden
        self._bounds = np.array([first.word, first.flag, last.word, last.flag, changed.word], np.int64)
        self._has = np.array([first.has, last.has], np.uint64)

    @property
    def lasts(self) -> I64:
        """The last time of each row; valid until the table changes."""
        return self._rows[: len(self), self.sessions.last_word].view(np.int64)

    @property
    def changed(self) -> Flags:
        """Which rows took part in a fold since the last commit."""
        flags: Flags = self._rows[: len(self), self.sessions.changed_word] > 0
        return flags

    def holds(self, hashes: U64) -> Flags:
        """Whether the rows of each hash are here."""
        flags: Flags = kernel.holds(self._slots, self._hashes, hashes)
        return flags

    def insert(self, run: Run) -> None:
        """Take in the rows of hashes that are not here."""
        width = self.layout.key_width
        keys = Run(run.order, np.ascontiguousarray(run.words[:, :width]), run.heap)
        ids, _ = self.upsert(keys)
        self.fill(ids, run.words, run.heap)

    def place(self, keys: Run, stretches: Stretches, dead_through: int) -> Ids:
        """The session of each stretch, merged with all that it touches and extended; `keys` by number."""
        layout = self.sessions
        starts, ids = self._rows_of(keys)
        words = (layout.ordinal_word, layout.first_word, layout.last_word)
        of_stretch, rows, groups, ordinals, merged, merged_by = kernel.lay(
            self._rows, *words, layout.window.width_us, dead_through,
            starts, ids, stretches.groups, stretches.begins, stretches.ends,
        )  # fmt: skip
        new = np.flatnonzero(rows < 0)
        if len(new):
            key_words = keys.words[groups[new]]
            key_words[:, layout.ordinal_word] = ordinals[new].view(np.uint64)
            rows[new], _ = self.upsert(Run(keys.order[groups[new]], key_words, keys.heap))
        if len(merged):
            self._take_in(rows[merged_by], merged)
        placed: Ids = rows[of_stretch]
        bounds = (stretches.begins, stretches.ends, stretches.counts)
        kernel.extend(self._rows, placed, *bounds, self._bounds, self._has)
        return placed

    def _rows_of(self, keys: Run) -> tuple[Ids, Ids]:
        width = self.layout.key_width
        prefix = np.ascontiguousarray(keys.words[:, : width - 1])
        arrays = (self._slots, self._rows, self._hashes, self._stamps, self._heap, self._counters)
        variable = self._is_variable[: width - 1]
        rows: tuple[Ids, Ids] = kernel.rows_of(
            *arrays, keys.order, prefix, keys.heap, variable, self._epoch
        )
        return rows

    def _take_in(self, by: Ids, rows: Ids) -> None:
        """Combine sessions into others that they touch now."""
        self.combine(by, self._copy(rows, self.layout.width))
        self._rows[rows, self.sessions.last_word] = np.array(kernel.GONE, np.int64).view(np.uint64)

    def dirty_live(self, dead_through: int) -> Run:
        """The dirty rows that are alive, ordered."""
        dirty = np.flatnonzero(self._stamps[: len(self), EPOCH] == self._epoch)
        return self._ordered(dirty[self.lasts[dirty] > dead_through])

    def live(self, dead_through: int) -> int:
        return self._living(dead_through, self.sessions.last_word)[0]

    def rows_kept(self, dead_through: int) -> int:
        """How many rows the live sessions have, where rows are kept."""
        return self._living(dead_through, self.sessions.count_word)[2]

    def _living(self, dead_through: int, word: int) -> tuple[int, int, int]:
        """How many sessions are alive; the least and the sum of a word of them."""
        figures: tuple[int, int, int] = session_scan.living(
            self._rows, len(self), self.sessions.last_word, dead_through, word
        )
        return figures

    def ending(self, after: int, through: int) -> Ids:
        """The rows whose last time is in `(after, through]`."""
        rows: Ids = session_scan.ending(self._rows, len(self), self.sessions.last_word, after, through)
        return rows

    def covers(self, hashes: U64, times: I64, dead_through: int) -> Flags:
        """Whether a live session may hold a row of each hash and time; it may if the hash is not here."""
        counts: Ids = np.empty(len(hashes), np.int64)
        words = (self.sessions.match_word, self.sessions.last_word)
        session_match.covered(
            self._slots, self._rows, self._hashes, hashes, times, *words, dead_through, counts
        )
        alive: Flags = counts > 0
        return alive

    def frozen_covers(self, dead_through: int) -> Callable[[U64, I64], Flags]:
        """The same for the sessions as they are now, for any thread; all live ones are here."""
        words = [self.sessions.match_word, self.sessions.last_word]
        bounds = np.ascontiguousarray(self._rows[: len(self), words])
        slots, present = self._slots.copy(), self.hashes.copy()

        def covers(hashes: U64, times: I64) -> Flags:
            counts: Ids = np.empty(len(hashes), np.int64)
            session_match.covered(slots, bounds, present, hashes, times, 0, 1, dead_through, counts)
            alive: Flags = (counts > 0) & kernel.holds(slots, present, hashes)
            return alive

        return covers

    def oldest(self, dead_through: int) -> int | None:
        """The first time of the oldest live session."""
        live, first, _ = self._living(dead_through, self.sessions.first_word)
        return first if live else None

    def nearest(self, after: int, many: int) -> tuple[I64, U64]:
        """Expected ends and hashes of the sessions that end next and have a last time above `after`."""
        ids, ends = np.flatnonzero(self.lasts > after), self.sessions.ends(self._rows[: len(self)])
        if len(ids) > many:
            ids = ids[np.argpartition(ends[ids], many - 1)[:many]]
        return ends[ids], self.hashes[ids]

    def forget_changes(self) -> None:
        self._rows[: len(self), self.sessions.changed_word] = 0

    def purge(self, dead_through: int) -> None:
        """Drop rows that are dead; they are nowhere alive, so the rest of their hash may stay."""
        kept = np.flatnonzero(self.lasts > dead_through)
        if len(kept) < len(self):
            self._keep(kept, 0, 0)
            self._counters[DIRTY] = np.count_nonzero(
                self._stamps[: self._counters[COUNT], EPOCH] == self._epoch
            )

    def _survivors(self, bytes_max: int, room_rows: int, room_heap: int) -> Ids:
        """The answer of the table, less the hashes that would lose a row."""
        kept = super()._survivors(bytes_max, room_rows, room_heap)
        dropped = np.ones(len(self), np.bool_)
        dropped[kept] = False
        whole: Ids = kernel.whole(self._slots, self._hashes, kept, dropped)
        return whole
