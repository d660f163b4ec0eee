"""The store of changing groups: an RMW store whose results are what an epoch did to its groups.

A before-image is a group's row ahead of its first change in an epoch. Results compare it with the row
after. Until the first spill of an epoch, `_before` has an image of every dirty row; from then on images are
looked up in committed segments.
Invariants: a group whose rows are all gone stays as a row with the count 0, until a compaction that
includes the oldest segment drops it.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.errors import QueryError
from headrace.plan.spec import output_schema
from headrace.plan.work.changes.retracting import Retracting
from headrace.row.arrays import I64
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.changes.differences import changes
from headrace.store.fold.looking import SliceState
from headrace.store.fold.rmw import ANY_BIT, RmwStore
from headrace.store.rows.arrow import results_of
from headrace.store.rows.slices import taking
from headrace.store.rows.take import rows_at
from headrace.store.segments.reader import Segment, lookup_all
from headrace.store.tables.table import Table


@dataclass
class ChangingStore(RmwStore):
    """Groups that change; `spec.work` is a `Retracting`."""

    _before: dict[int, Table] = field(default_factory=dict)
    _has_spilled: bool = False

    @cached_property
    def _plain(self) -> RowLayout:
        """The layout whose results have no kind."""
        return RowLayout(replace(self.spec, emit="changes"))

    @cached_property
    def _count_word(self) -> int:
        assert isinstance(self.spec.work, Retracting)
        return self.layout.accumulators[self.spec.work.rows].word

    def _counts(self, run: Run) -> I64:
        """The number of rows of each group."""
        counts: I64 = np.ascontiguousarray(run.words[:, self._count_word]).view(np.int64)
        return counts

    # ── before-images ────────────────────────────────────────────────────────────────────────

    def _changing(self, slice_us: int, state: SliceState, row_ids: I64) -> None:
        """Copies rows that change for the first time in this epoch."""
        if self._has_spilled:
            return
        images = self._before.get(slice_us)
        if images is None:
            images = self._before[slice_us] = Table(self.layout)
        rows = state.table.rows_of(np.unique(row_ids))
        absent = np.flatnonzero(images.find(rows) < 0)
        part = rows_at(rows, absent)
        ids, _ = images.upsert(part)
        images.fill(ids, part.words, part.heap)

    def spill(self) -> None:
        super().spill()
        if self.spilled:
            self._before.clear()
            self._has_spilled = True

    def _image_of(self, slice_us: int, after: Run) -> tuple[I64, Run]:
        """Positions of the rows that had a group before, and the images of those."""
        images = self._before.get(slice_us)
        if not self.segments:
            return np.empty(0, np.int64), self._no_rows()
        if self._has_spilled or images is None:
            probe = Run(after.order, after.words[:, : self.layout.key_width].copy(), after.heap)
            answer = lookup_all(self.segments[::-1], slice_us, probe)
            at = np.flatnonzero(answer.mask)
            image = Run(after.order[at], answer.words[at], answer.heap)
        else:
            ids = images.find(after)
            at = np.flatnonzero(ids >= 0)
            image = images.rows_of(ids[at])
        exists = np.flatnonzero(self._counts(image) > 0)
        return at[exists], rows_at(image, exists)

    @property
    def needed_bytes(self) -> int:
        own: int = super().needed_bytes
        return own + sum(table.nbytes for table in list(self._before.values()))

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """The changes of this epoch, or the groups as they are now."""
        window, touched = self.spec.window, self._touched()
        for start_us in sorted(touched) if window is None else taking(touched, window, self.watermark_us):
            for after in self._changed_runs(start_us, touched):
                yield self._differences(start_us, after)

    def _differences(self, start_us: int, after: Run) -> pa.RecordBatch:
        counts = self._counts(after)
        if (counts < 0).any():
            raise QueryError(
                f"operator {self.spec.name}: more rows of a group were deleted than inserted",
                hint="its input is not a whole changelog: keep every row of it, and its kind column",
            )
        exists = np.flatnonzero(counts > 0)
        now = self._batch(start_us, rows_at(after, exists))
        if self.spec.emit != "changelog":
            return now
        at, image = self._image_of(start_us, after)
        assert isinstance(self.spec.work, Retracting)
        hidden = self.spec.work.hidden_columns
        return changes(self._batch(start_us, image), at, now, exists, output_schema(self.spec), hidden)

    def _batch(self, start_us: int, run: Run) -> pa.RecordBatch:
        """Rows as one batch of results without kinds."""
        window_start = start_us if self.spec.window else None
        batches = list(results_of(self._plain, run, window_start, max(1, len(run))))
        return batches[0] if batches else pa.RecordBatch.from_pylist([], output_schema(self._plain.spec))

    # ── commit ───────────────────────────────────────────────────────────────────────────────

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self._before.clear()
        self._has_spilled = False
        super().settle(segments, watermark_us)

    @property
    def _living(self) -> tuple[int, int]:
        """Groups without rows are dropped where no older segment can have them."""
        return self._count_word, ANY_BIT
