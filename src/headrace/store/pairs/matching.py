"""Which rows of two runs match, in bounded pieces. Pure computation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.kernels.groups.pairs import mark_matched, next_pairs
from headrace.plan.columns import LEFT, RIGHT
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.row.arrays import I64, Flags
from headrace.row.run import Run
from headrace.store.pairs.conditions import Pairs, holds
from headrace.store.rows.kept_layout import KeptLayout, times_in
from headrace.store.rows.kept_values import KeptValues
from headrace.store.rows.take import rows_at

PAIRS_MAX = 1 << 16  # pairs per piece


@dataclass(frozen=True)
class Matching:
    """The rule by which rows of a join match."""

    layout: KeptLayout
    work: StreamJoin
    pairs_max: int = PAIRS_MAX

    @cached_property
    def _variable(self) -> Flags:
        variable = np.zeros(self.layout.key_width, np.bool_)
        variable[list(self.layout.variable_key_words)] = True
        return variable

    def _rule(self, side: int) -> I64:
        side_word = self.layout.side_word
        assert side_word is not None, "rows of a join have a side"
        bounds = self.work.partner_us(side)
        until = () if self.work.until is None else (self.layout.input(self.work.until).word, side == LEFT)
        return np.array([self.layout.time_word, side_word, *(bounds or ()), *until], np.int64)

    def stored_times(self, run: Run, sides: I64) -> I64:
        """The time by which each row is stored and dropped."""
        times = times_in(self.layout, run)
        if self.work.stored_by is None:
            return times
        return np.where(sides == RIGHT, self._stored_by(run), times)

    def _stored_by(self, run: Run) -> I64:
        assert self.work.stored_by is not None
        word = self.layout.input(self.work.stored_by).word
        return np.ascontiguousarray(run.words[:, word]).view(np.int64)

    def partner_times(self, side: int, run: Run) -> tuple[int | None, int | None]:
        """The first and the last stored time that partners of these rows can have; None: any."""
        bounds = self.work.partner_us(side)
        if bounds is None:
            return None, None
        times = times_in(self.layout, run)
        first, last = int(times.min()), int(times.max())
        if self.work.until is None:
            return first + bounds[0], last + bounds[1]
        return (first, None) if side == LEFT else (first, int(self._stored_by(run).max()))

    def pairs(self, side: int, rows: Run, partners: Run) -> Iterator[tuple[I64, I64]]:
        """Row numbers of matching rows; `rows` are of `side`, and partners are ordered by hash."""
        if self.work.where is None:
            yield from self._near(side, rows, partners)
            return
        values = {side: KeptValues(self.layout, rows), 1 - side: KeptValues(self.layout, partners)}
        for mine, theirs in self._near(side, rows, partners):
            pairs: Pairs = {side: (values[side], mine), 1 - side: (values[1 - side], theirs)}
            matches = holds(self.work.where, pairs)
            if matches.any():
                yield mine[matches], theirs[matches]

    def _near(self, side: int, rows: Run, partners: Run) -> Iterator[tuple[I64, I64]]:
        """Row numbers of rows with equal keys whose times match."""
        begins, ends = _spans(rows, partners)
        cursor = np.zeros(2, np.int64)
        while cursor[0] < len(rows):
            mine, theirs = np.empty(self.pairs_max, np.int64), np.empty(self.pairs_max, np.int64)
            count = next_pairs(
                begins, ends, rows.words, rows.heap, partners.words, partners.heap,
                self._variable, self._rule(side), cursor, mine, theirs,
            )  # fmt: skip
            if count:
                yield mine[:count], theirs[:count]

    def mark(self, side: int, rows: Run, partners: Run, matched: Flags) -> None:
        """Marks the rows that match any partner."""
        if self.work.where is not None:
            unmatched = np.flatnonzero(~matched)
            for mine, _ in self.pairs(side, rows_at(rows, unmatched), partners):
                matched[unmatched[mine]] = True
            return
        begins, ends = _spans(rows, partners)
        mark_matched(
            begins, ends, rows.words, rows.heap, partners.words, partners.heap,
            self._variable, self._rule(side), matched,
        )  # fmt: skip


def _spans(rows: Run, partners: Run) -> tuple[I64, I64]:
    """Where the partners of each row's hash begin and end."""
    begins = np.searchsorted(partners.order, rows.order, "left")
    ends = np.searchsorted(partners.order, rows.order, "right")
    return begins.astype(np.int64, copy=False), ends.astype(np.int64, copy=False)
