"""Runs top-N: ranks the rows of each key, and drops those that can never be among the first again.

Rows that are equal in the order go by event time, then by their other columns, the smaller first. So ranks
do not depend on arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.operators.holistic_order import Sorted, Values, sort_groups
from headrace.operators.implementation import Opening
from headrace.plan.spec import OperatorSpec, StoreName, output_schema
from headrace.plan.work.changes.top import RANK, Top
from headrace.row.arrays import I64, U64, Flags
from headrace.row.layout import RowLayout
from headrace.store.base.contract import Store
from headrace.store.base.files import FileKind
from headrace.store.changes.bag_rows import BagRows, BagShape, occurrences
from headrace.store.changes.bag_store import BagRule, BagStore, Results
from headrace.store.rows.groups import Computation, Groups
from headrace.store.rows.kept_layout import KeptLayout, input_array, key_array, time_key, times_in


class Topping:
    """An `Implementation` whose store keeps the first rows of each key."""

    def kinds(self, spec: OperatorSpec, store: StoreName) -> tuple[FileKind, ...]:
        return (FileKind("rows", RowLayout(spec)),)

    def open(self, opening: Opening) -> Store:
        place = (opening.spec, opening.budget, opening.files, opening.segments, opening.watermark_us)
        return BagStore(*place, opening.known_keys, rule=TopRule(BagShape(KeptLayout(opening.spec))))

    def computation(self, layout: KeptLayout) -> Computation:
        raise TypeError(f"operator {layout.spec.name} has no windows, so no groups are computed from them")


@dataclass(frozen=True)
class _Ranked:
    """Rows of groups in order, and the rank of each."""

    sorted: Sorted
    ranks: I64


@dataclass(frozen=True)
class TopRule(BagRule):
    """The rule of a `Top`."""

    shape: BagShape

    @property
    def _work(self) -> Top:
        work = self.shape.layout.spec.work
        assert isinstance(work, Top)
        return work

    @property
    def sign(self) -> str | None:  # type: ignore[override]
        return self._work.sign

    def kept(self, bags: BagRows) -> tuple[I64, I64]:
        """Without deletes a row that is not among the first never is again."""
        if self._work.sign is not None:
            order = np.argsort(bags.of_row, kind="stable")
            return order, np.searchsorted(bags.of_row[order], np.arange(bags.groups + 1))
        ranked = self._first(bags)
        return ranked.sorted.rows, ranked.sorted.offsets

    def results(self, before: BagRows, after: BagRows) -> tuple[Results, Results]:
        sides = before, after
        ranked = [self._first(side) for side in sides]
        batches = [self._batch(side, ranks) for side, ranks in zip(sides, ranked, strict=True)]
        if self._work.ranked and self._work.ranking == "row_number":
            ids = [one.sorted.groups * (self._work.n + 1) + one.ranks for one in ranked]
        else:
            ids = self._content_ids(sides, ranked)
        return self._results(batches[0], ids[0]), self._results(batches[1], ids[1])

    @staticmethod
    def _results(batch: pa.RecordBatch, ids: I64) -> Results:
        order = np.argsort(ids, kind="stable")
        return Results(batch.take(pa.array(order)), ids[order])

    def _content_ids(self, sides: tuple[BagRows, BagRows], ranked: list[_Ranked]) -> list[I64]:
        """Ids by content and rank: what is on both sides did not change."""
        chosen = [side.at(one.sorted.rows) for side, one in zip(sides, ranked, strict=True)]
        numbers = self.shape.contents(self.shape.joined(*chosen))
        if self._work.ranked:
            ranks = np.concatenate([one.ranks for one in ranked])
            numbers = np.unique(np.stack([numbers, ranks]), axis=1, return_inverse=True)[1].reshape(-1)
        made, start = [], 0
        for one in ranked:
            mine = numbers[start : start + len(one.ranks)]
            start += len(one.ranks)
            order = np.argsort(mine, kind="stable")
            times = np.empty(len(mine), np.int64)
            times[order] = occurrences(mine[order])
            made.append(mine * (1 << 24) + times)
        return made

    # ── ranks ────────────────────────────────────────────────────────────────────────────────

    def _first(self, bags: BagRows) -> _Ranked:
        """The rows whose rank is at most n, in order."""
        return _Ranking(self.shape.layout, self._work, bags).first()

    def _batch(self, bags: BagRows, ranked: _Ranked) -> pa.RecordBatch:
        layout = self.shape.layout
        rows = bags.at(ranked.sorted.rows).rows
        columns = [key_array(slot, rows) for slot in layout.keys]
        columns += [input_array(slot, rows) for slot in layout.inputs]
        names = [field.name for field in (*layout.spec.keys, *layout.spec.inputs)]
        ranks = ranked.ranks if self._work.ranked else np.zeros(len(rows), np.int64)
        columns.append(pa.array(ranks.astype(np.int32)))
        schema = output_schema(layout.spec)
        fields = [schema.field(name) for name in (*names, RANK)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@dataclass(frozen=True)
class _Ranking:
    """Ranks of the rows of bags."""

    layout: KeptLayout
    work: Top
    bags: BagRows

    @cached_property
    def _groups(self) -> Groups:
        nothing = np.zeros(self.bags.groups, np.int64)
        return Groups(self.bags.of_row, nothing, nothing, nothing)

    @cached_property
    def _keys(self) -> list[U64]:
        """Order keys, the most important last."""
        keys: list[U64] = []
        for order in reversed(self.work.order):
            values = Values.of(self.layout.input(order.input), self.bags.rows)
            keys.append(~values.keys if order.descending else values.keys)
            keys.append((values.valid if order.nulls_first else ~values.valid).astype(np.uint64))
            keys[-2] = np.where(values.valid, keys[-2], np.uint64(0))
        return keys

    def first(self) -> _Ranked:
        order = sort_groups(self._groups, self._keys)
        ties = self._ties(order)
        if ties.any():
            order = sort_groups(self._groups, [*self._tie_keys(), *self._keys])
            ties = self._ties(order)
        ranks = self._ranks(order, ties)
        among = ranks <= self.work.n
        return _Ranked(order.where(among), ranks[among])

    def _ties(self, order: Sorted) -> Flags:
        """Which rows equal the one before them in their group."""
        same = np.zeros(len(order.rows), np.bool_)
        if len(same) > 1:
            groups = order.groups
            same[1:] = groups[1:] == groups[:-1]
            for key in self._keys:
                same[1:] &= key[order.rows[1:]] == key[order.rows[:-1]]
        return same

    def _tie_keys(self) -> list[U64]:
        """What decides between equal rows: event time, then the columns in their order, the last first."""
        by = {order.input for order in self.work.order}
        others = [slot for slot in self.layout.inputs if slot.field.name not in by]
        keys: list[U64] = []
        for slot in reversed(others):
            values = Values.of(slot, self.bags.rows)
            keys += [np.where(values.valid, values.keys, np.uint64(0)), values.valid.astype(np.uint64)]
        if self.layout.spec.timed:
            keys.append(time_key(times_in(self.layout, self.bags.rows).view(np.uint64)))
        return keys

    def _ranks(self, order: Sorted, ties: Flags) -> I64:
        position = np.arange(len(order.rows)) - order.offsets[:-1][order.groups]
        if self.work.ranking == "row_number":
            return position + 1
        if self.work.ranking == "rank":
            return (
                np.maximum.accumulate(np.where(ties, 0, np.arange(len(ties))))
                - (np.arange(len(ties)) - position)
                + 1
            )
        distinct = np.cumsum(~ties)
        before = np.concatenate([[0], distinct])[order.offsets[:-1]][order.groups]
        dense: I64 = distinct - before
        return dense
