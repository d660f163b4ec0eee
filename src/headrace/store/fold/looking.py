"""How an RMW store comes by rows that its tables lack: look-ups in segments, and reads ahead of rows.

Invariants: what was read ahead is consulted before the segments, and forgotten once newer rows are flushed.
Threads: the partition's own; reads ahead call `_stored` from theirs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.cache.policy import Policy
from headrace.plan.spec import TIME
from headrace.row.arrays import U64, Flags
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.ahead.hints import distinct
from headrace.store.ahead.lookahead import Lookahead
from headrace.store.ahead.manager import row_bytes
from headrace.store.base.ahead_counts import AheadCounts
from headrace.store.base.contract import Store
from headrace.store.base.share import Share
from headrace.store.base.waits import StateWaits
from headrace.store.rows.arrow import hashes_in
from headrace.store.rows.slices import cut, times_of
from headrace.store.segments.reader import Answer, Found, Segment, answer_from
from headrace.store.tables.table import Table


@dataclass
class SliceState:
    """One slice in memory: its table, and whether the table has every key of the slice."""

    table: Table
    complete: bool
    keys: int = 0


class LookingStore(Store):
    """The reading half of an RMW store."""

    share: Share
    spilled: list[Segment]
    policy: Policy
    waits: StateWaits
    _slices: dict[int, SliceState]
    _runs: dict[int, Run]
    _block: int

    @cached_property
    def layout(self) -> RowLayout:
        return RowLayout(self.spec)

    def waited(self) -> StateWaits:
        return self.waits

    def _is_stored(self, slice_us: int) -> bool:
        """Whether any segment has rows of the slice."""
        return any(slice_us in segment.sections for segment in (*self.segments, *self.spilled))

    def _look_up(self, slice_us: int, probe: Run) -> Found:
        """The stored rows of an ordered probe, from segments and spilled rows."""
        answer = Answer(probe, self.layout.width)
        with self.waits.waiting():
            known = self.lookahead.answer(slice_us, answer)
            absent = known & ~answer.mask
            answer.mask |= absent
            answer_from(self._stored(), slice_us, answer)
            answer.mask &= ~absent
        self.waits.keys += len(probe)
        self.waits.hits += int(known.sum())
        self.waits.blocks += answer.reads
        self.waits.bytes += answer.read_bytes
        return answer.result()

    def _stored(self) -> list[Segment]:
        """All flushed rows, newest first. Spilled ones are read first: a commit replaces them last."""
        spilled = self.spilled
        return [*self.segments, *spilled][::-1]

    # ── reading ahead ────────────────────────────────────────────────────────────────────────

    @cached_property
    def lookahead(self) -> Lookahead:
        return Lookahead(self.layout, self.share)

    def look_ahead(self, threads: Executor | None) -> None:
        self.lookahead.use(threads, self._stored)

    def ahead_counts(self) -> AheadCounts:
        return self.lookahead.counts

    def expect(self, rows: pa.RecordBatch) -> None:
        """Pins the rows that are in memory, and reads the others ahead."""
        if not self.lookahead.is_on:
            return
        timely = 0
        for slice_us, part in cut(rows, self.spec.window, self.watermark_us):
            timely += part.num_rows
            hashes, time_us = distinct(hashes_in(part)), self._latest_us(part)
            resident = self._resident(slice_us, hashes, self.policy.expected(self._block, time_us))
            self._make_room_ahead(int((~resident).sum()) * row_bytes(self.layout))
            self.lookahead.hint(slice_us, hashes, resident, self._block if time_us is None else time_us)
        self.lookahead.late(rows.num_rows - timely)

    @abstractmethod
    def _make_room_ahead(self, staged_bytes: int) -> None:
        """Evicts the rows that leave first, so that others can be read ahead."""

    def _resident(self, slice_us: int, hashes: U64, mark: int | None) -> Flags:
        """The hashes that need no read; those with a row in memory are pinned by the mark."""
        state = self._slices.get(slice_us)
        if state is None:
            return np.full(len(hashes), not self._is_stored(slice_us))
        return state.table.expect(hashes, mark) | state.complete

    def _dirty_hashes(self) -> Iterator[tuple[int, U64]]:
        for slice_us, state in self._slices.items():
            if state.table.dirty_count:
                yield slice_us, self._dirty_run(slice_us).order

    def _latest_us(self, rows: pa.RecordBatch) -> int | None:
        """The latest event time of rows; None where they carry none."""
        return int(times_of(rows).max()) if TIME in rows.schema.names and rows.num_rows else None

    def _dirty_run(self, slice_us: int) -> Run:
        """The slice's dirty rows in hash order; kept for the flush and for results."""
        if slice_us not in self._slices:
            return self._no_rows()
        run = self._runs.get(slice_us)
        if run is None:
            run = self._runs[slice_us] = self._slices[slice_us].table.dirty_run()
        return run

    def _no_rows(self) -> Run:
        width = self.layout.width
        return Run(np.empty(0, np.uint64), np.empty((0, width), np.uint64), np.empty(0, np.uint8))
