"""The bag store: the rows of each key as one value, and results that follow from a key's rows.

Every epoch reads the bags of the keys that it has rows for, adds or takes back rows, and writes them again.
A `BagRule` selects the rows that stay and computes the results of a key. Results are compared with those of
the bags before.
Invariants: a bag without rows is an empty value, and its key does not exist.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.plan.columns import INSERT, UPDATE_AFTER
from headrace.plan.spec import output_schema
from headrace.row.arrays import I64, U8, U64
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.changes.bag_rows import BagRows, BagShape, net
from headrace.store.changes.differences import changes
from headrace.store.changes.store import ChangingStore
from headrace.store.fold.looking import SliceState
from headrace.store.fold.rmw import ANY_BIT
from headrace.store.rows.arrow import heap_bytes, probe_of
from headrace.store.rows.kept_layout import pieces_of
from headrace.store.rows.slices import WHOLE


def write_bags(layout: RowLayout, state: SliceState, ids: I64, keys: Run, bags: tuple[U64, U8]) -> None:
    """Gives state rows new bags: pointers and the heap that they point into."""
    (pointers, heap), slot, words = bags, layout.accumulators[0], keys.words
    words[:, slot.word] = pointers
    words[:, layout.key_width] = np.where(pointers != 0, np.uint64(1 << slot.has_bit), np.uint64(0))
    state.table.fill(ids, words, heap)


class BagRule(ABC):
    """What an operator makes of the rows of a key."""

    shape: BagShape
    sign: str | None  # the input with the sign of a change; None: all rows are new

    @abstractmethod
    def kept(self, bags: BagRows) -> tuple[I64, I64]:
        """Numbers of the rows that stay, by group, and where each group begins."""

    @abstractmethod
    def results(self, before: BagRows, after: BagRows) -> tuple[Results, Results]:
        """The results of the same groups before and after an epoch."""


@dataclass(frozen=True)
class Results:
    """Results without kinds, and their ids: equal ids of two sides are one row that changed."""

    batch: pa.RecordBatch
    ids: I64


@dataclass
class BagStore(ChangingStore):
    """Rows of keys; `rule` is that of the operator."""

    rule: BagRule | None = None

    @property
    def _rule(self) -> BagRule:
        assert self.rule is not None
        return self.rule

    @cached_property
    def _word(self) -> int:
        return self.layout.accumulators[0].word

    @property
    def _living(self) -> tuple[int, int]:
        return self._word, ANY_BIT

    def _counts(self, run: Run) -> I64:
        exists: I64 = (run.words[:, self._word] != 0).astype(np.int64)
        return exists

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        state = self._slice(WHOLE)
        self._make_room(state, rows.num_rows, 2 * heap_bytes(rows) + rows.nbytes)
        before = state.table.nbytes
        self._block += 1
        state.table.use(self.policy.used(self._block, self._latest_us(rows)))
        row_ids, fresh = state.table.upsert(probe_of(self.layout, rows))
        if len(fresh):
            state.keys += len(fresh) - self._load(WHOLE, state, fresh)
        self._changing(WHOLE, state, row_ids)
        self._add(state, row_ids, rows)
        self._table_bytes += state.table.nbytes - before

    def _add(self, state: SliceState, row_ids: I64, rows: pa.RecordBatch) -> None:
        """Writes the bags of touched keys with the new rows."""
        touched, of_row = np.unique(row_ids, return_inverse=True)
        keys, shape = state.table.rows_of(touched), self._rule.shape
        stored = shape.unpacked(keys, self._word)
        new = BagRows(pieces_of(shape.layout, rows), of_row.astype(np.int64), len(touched))
        signs = np.concatenate([np.ones(len(stored.of_row), np.int64), self._signs(new)])
        bags = net(shape, shape.joined(stored, new), signs)
        write_bags(self.layout, state, touched, keys, shape.packed(bags, *self._rule.kept(bags)))

    def _signs(self, new: BagRows) -> I64:
        """The sign of each new row; it is cleared, so that a retraction equals its row."""
        if self._rule.sign is None:
            return np.ones(len(new.of_row), np.int64)
        word = self._rule.shape.layout.input(self._rule.sign).word
        signs: I64 = new.rows.words[:, word].view(np.int64).copy()
        new.rows.words[:, word] = 0
        return signs

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def _differences(self, start_us: int, after: Run) -> pa.RecordBatch:
        at, image = self._image_of(start_us, after)
        shape = self._rule.shape
        old = shape.unpacked(image, self._word)
        aligned = BagRows(old.rows, at[old.of_row], len(after))
        before, now = self._rule.results(aligned, shape.unpacked(after, self._word))
        schema = output_schema(replace(self.spec, emit="changelog"))
        made = changes(before.batch, before.ids, now.batch, now.ids, schema)
        if self.spec.emit == "changelog":
            return made
        kinds = np.asarray(made.column(made.num_columns - 1))
        new = pa.array((kinds == INSERT) | (kinds == UPDATE_AFTER))
        return made.filter(new).select(output_schema(self.spec).names)
