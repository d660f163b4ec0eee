"""The cell store: values of bytes by key and cell number, and reminders by time.

Cells and reminders are two RMW stores with a kind of segment each. A cell is replaced as a whole; a deleted
cell stays as a tombstone until a compaction reaches the oldest segment. Reminders are hints: the worker
checks each against the header of its key, so no reminder is ever deleted by itself. Their slices close when
their time has come.
Invariants: `due` raises the watermark of reminders, and a reminder in the past is filed after it.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.kernels.core.order import by_hash
from headrace.plan.spec import OperatorSpec
from headrace.plan.work.cells import CELL
from headrace.row.arrays import I64
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.base.contract import Request, Store
from headrace.store.base.files import FileKind, Files, Gathered, of_kind
from headrace.store.base.jobs import Compaction, Job, Merge, live_sections
from headrace.store.base.room import CELL_ROWS, REMINDER_ROWS
from headrace.store.base.share import PartialShare, Share
from headrace.store.base.waits import StateWaits
from headrace.store.cells.rows import (
    answer_of,
    cell_run,
    cell_spec,
    due_of,
    has_value,
    reminder_spec,
    values_of,
    with_time,
)
from headrace.store.fold.rmw import RmwStore, merge_newest
from headrace.store.rows.arrow import heap_bytes, probe_of, results_of
from headrace.store.rows.slices import WHOLE
from headrace.store.rows.take import rows_where
from headrace.store.segments.compact import plan
from headrace.store.segments.reader import Segment

CELLS, REMINDERS = "rows", "reminders"
DUE_ROWS = 1 << 16


def cell_kinds(spec: OperatorSpec) -> tuple[FileKind, ...]:
    """The kinds of segments that the store writes."""
    return (
        FileKind(CELLS, RowLayout(cell_spec(spec))),
        FileKind(REMINDERS, RowLayout(reminder_spec(spec))),
    )


class CellTable(RmwStore):
    """Cells by key and number."""

    def read(self, rows: pa.RecordBatch) -> pa.Array:
        """The value of each cell, in the order of the batch; null where there is none."""
        probe, state = probe_of(self.layout, rows), self._slice(WHOLE)
        ids = state.table.find(probe)
        resident, absent = np.flatnonzero(ids >= 0), np.flatnonzero(ids < 0)
        parts = [values_of(self.layout, state.table.rows_of(ids[resident]))]
        places = [resident]
        if len(absent) and not state.complete:
            order = absent[by_hash(probe.order[absent])]
            ordered = Run(probe.order[order], probe.words[order], probe.heap)
            answer = self._look_up(WHOLE, ordered)
            hit = np.flatnonzero(answer.mask)
            stored = Run(ordered.order[hit], np.ascontiguousarray(answer.words[hit]), answer.heap)
            parts.append(values_of(self.layout, stored))
            places.append(order[hit])
        at = np.full(len(probe), -1, np.int64)
        positions = np.concatenate(places)
        at[positions] = np.arange(len(positions))
        return pa.concat_arrays(parts).take(pa.array(at, mask=at < 0))

    def write(self, rows: pa.RecordBatch) -> None:
        """Replace cells as a whole; a null value deletes the cell. No cell comes twice in a batch."""
        state = self._slice(WHOLE)
        self._make_room(state, rows.num_rows, heap_bytes(rows))
        before, run = state.table.nbytes, cell_run(self.layout, rows)
        ids, fresh = state.table.upsert(run)
        state.table.fill(ids, run.words, run.heap)
        state.keys += len(fresh)
        self._table_bytes += state.table.nbytes - before

    def maintenance(self, many: int | None = None) -> Job | None:
        """Tombstones are dropped where no older segment can have the cell."""
        chosen = plan([segment.size for segment in self.segments], unread=self._is_unread)
        if chosen is None or (many is not None and len(self.segments) <= many):
            return None
        inputs = self.segments[chosen]
        live = live_sections(inputs, lambda _: True)
        living = has_value(self.layout) if chosen.start == 0 else None
        return Compaction.of(
            inputs, Merge("newest", self.spec, self._kind, live, living=living), merge_newest
        )


class ReminderTable(RmwStore):
    """Keys by time."""

    def due(self, until_ms: int) -> Iterator[tuple[pa.RecordBatch, I64]]:
        """Keys with a time up to `until_ms`, and their hashes; slices come in the order of time."""
        live = self._stored_slices() | set(self._slices)
        word = self.layout.keys[-1].word
        for slice_us in sorted(s for s in live if s <= until_ms * 1000):
            for run in self._slice_runs(slice_us):
                times = np.ascontiguousarray(run.words[:, word]).view(np.int64)
                part = rows_where(run, times <= until_ms)
                if len(part):
                    batch = pa.Table.from_batches(results_of(self.layout, part, slice_us, DUE_ROWS))
                    names = [field.name for field in self.spec.keys]
                    keys = batch.select(names).combine_chunks().to_batches()[0]
                    yield keys, part.order.view(np.int64)


class CellStore(Store):
    """State of one partition of a processor."""

    def __init__(
        self,
        spec: OperatorSpec,
        share: Share,
        files: Files,
        segments: list[Segment],
        watermark_us: int | None,
        known_keys: int = 0,
    ) -> None:
        self.spec, self.segments = spec, segments
        self.late_rows = 0
        cells, reminders = of_kind(segments, CELLS), of_kind(segments, REMINDERS)
        of_cells, of_reminders = PartialShare(share, CELL_ROWS), PartialShare(share, REMINDER_ROWS)
        self.cells = CellTable(cell_spec(spec), of_cells, files, cells, None, known_keys)
        self.reminders = ReminderTable(
            reminder_spec(spec),
            of_reminders,
            files,
            reminders,
            watermark_us,
            kind_name=REMINDERS,
            waits=self.cells.waits,
        )

    def waited(self) -> StateWaits:
        return self.cells.waits

    # ── the worker's requests ────────────────────────────────────────────────────────────────

    def answer(self, request: Request, rows: pa.RecordBatch, until_ms: int) -> Iterator[pa.RecordBatch]:
        """Answers of the output schema; `write` and `remind` have none."""
        match request:
            case "read":
                yield answer_of(self.spec, self.cells.read(rows))
            case "write":
                self.cells.write(rows)
            case "remind":
                self._remind(rows)
            case "due":
                yield from self._due(until_ms)

    def _remind(self, rows: pa.RecordBatch) -> None:
        times_us = rows.column(CELL).to_numpy() * 1000
        if self.reminders.watermark_us is not None:
            times_us = np.maximum(times_us, self.reminders.watermark_us)
        self.reminders.apply(with_time(rows, times_us, self.spec.keys))

    def _due(self, until_ms: int) -> Iterator[pa.RecordBatch]:
        for keys, hashes in self.reminders.due(until_ms):
            yield due_of(self.spec, keys, hashes)
        before = self.reminders.watermark_us
        self.reminders.watermark_us = until_ms * 1000 if before is None else max(before, until_ms * 1000)

    # ── the contract ─────────────────────────────────────────────────────────────────────────

    @property
    def files(self) -> Files:
        return self.cells.files

    @files.setter
    def files(self, files: Files) -> None:
        self.cells.files = self.reminders.files = files

    @property
    def watermark_us(self) -> int | None:
        return self.reminders.watermark_us

    @watermark_us.setter
    def watermark_us(self, watermark_us: int | None) -> None:
        self.reminders.watermark_us = watermark_us

    @property
    def memory_bytes(self) -> int:
        return self.cells.memory_bytes + self.reminders.memory_bytes

    def apply(self, rows: pa.RecordBatch) -> None:
        self.cells.write(rows)

    def gather(self, watermark_us: int | None) -> Gathered:
        cells, reminders = self.cells.gather(None), self.reminders.gather(watermark_us)
        sections = (*cells.sections, *reminders.sections)
        return Gathered(self.files, sections, (*cells.spilled, *reminders.spilled))

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        return iter(())

    def settle(self, segments: list[Segment], watermark_us: int | None) -> None:
        self.cells.settle(of_kind(segments, CELLS), None)
        self.reminders.settle(of_kind(segments, REMINDERS), watermark_us)
        self.segments = segments

    def is_live(self, segment: Segment, watermark_us: int | None) -> bool:
        return segment.kind != REMINDERS or self.reminders.is_live(segment, watermark_us)

    def keys_after(self, watermark_us: int | None) -> int:
        return self.cells.keys

    def maintenance(self, many: int | None = None) -> Job | None:
        return self.cells.maintenance(many) or self.reminders.maintenance(many)
