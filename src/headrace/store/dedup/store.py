"""The dedup store: one time per key, in slices of that time, so that expired keys are dropped by slice.

A row passes if its key has no live state row. If the last row counts, a newer row passes too. Of the rows
of one key in a block, the earliest or the latest is considered. A key has at most one live row; an
expired row may remain in an older slice until the slice closes.
Invariants: rows that pass are returned by `results` of the same epoch, in the order of arrival.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.core.order import by_hash
from headrace.kernels.groups.group import group_rows
from headrace.plan.spec import output_schema
from headrace.plan.work.dedup import Dedup
from headrace.row.arrays import I64, Flags
from headrace.row.run import Run
from headrace.store.fold.rmw import RmwStore
from headrace.store.rows.arrow import heap_bytes, probe_of
from headrace.store.rows.slices import WHOLE, starts, times_of


@dataclass
class DedupStore(RmwStore):
    """Times by key; `spec.work` is a `Dedup`."""

    _passed: list[pa.RecordBatch] = field(default_factory=list)
    _passed_bytes: int = 0

    @property
    def _work(self) -> Dedup:
        assert isinstance(self.spec.work, Dedup)
        return self.spec.work

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    def apply(self, rows: pa.RecordBatch) -> None:
        """Passes rows of new keys on; late rows are dropped and counted."""
        timely = self._timely(rows)
        self.late_rows += rows.num_rows - timely.num_rows
        if not timely.num_rows:
            return
        times = times_of(timely) if self.spec.timed else np.zeros(timely.num_rows, np.int64)
        chosen = self._one_per_key(timely, times)
        candidates, times = timely.take(pa.array(chosen)), times[chosen]
        passes = self._passes(candidates, times)
        if passes.any():
            self._remember(candidates.filter(pa.array(passes)), times[passes])
            self._pass_on(timely, np.sort(chosen[passes]))

    def _timely(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self.spec.timed or self.watermark_us is None or not self.spec.delays_ms:
            return rows
        return rows.filter(pa.array(times_of(rows) > self.watermark_us))

    def _one_per_key(self, rows: pa.RecordBatch, times: I64) -> I64:
        """The row of each key that can pass: the earliest or the latest; of equal times the first."""
        hashes = probe_of(self.layout, rows).order
        order = np.lexsort((times if self._work.keep == "first" else -times, hashes))
        probe = probe_of(self.layout, rows.take(pa.array(order)))
        variable = np.zeros(self.layout.key_width, np.bool_)
        variable[list(self.layout.variable_key_words)] = True
        _, firsts = group_rows(probe.order, probe.words, probe.heap, np.empty(0, np.int64), variable)
        chosen: I64 = order[firsts]
        return chosen

    def _passes(self, candidates: pa.RecordBatch, times: I64) -> Flags:
        """Which candidates have no live state row, or are newer than it."""
        passes = np.ones(candidates.num_rows, np.bool_)
        probe = probe_of(self.layout, candidates)
        live = (self._stored_slices() | set(self._slices)) if self.spec.window else {WHOLE}
        for slice_us in live:
            known, stored = self._times_in(slice_us, probe)
            known &= self._is_live_time(stored)
            passes &= ~known if self._work.keep == "first" else ~known | (times > stored)
        return passes

    def _is_live_time(self, stored: I64) -> Flags:
        ttl_us = self._work.ttl_us
        if not ttl_us or self.watermark_us is None:
            return np.ones(len(stored), np.bool_)
        live: Flags = stored + ttl_us > self.watermark_us
        return live

    def _times_in(self, slice_us: int, probe: Run) -> tuple[Flags, I64]:
        """Which keys have a state row in a slice, and its time."""
        state, word = self._slice(slice_us), self.layout.accumulators[0].word
        ids = state.table.find(probe)
        known, stored = ids >= 0, np.zeros(len(probe), np.int64)
        stored[known] = state.table.rows_of(ids[known]).words[:, word].view(np.int64)
        absent = np.flatnonzero(~known)
        if len(absent) and not state.complete:
            order = absent[by_hash(probe.order[absent])]
            part = Run(probe.order[order], probe.words[order], probe.heap)
            answer = self._look_up(slice_us, part)
            hit = np.flatnonzero(answer.mask)
            known[order[hit]] = True
            stored[order[hit]] = np.ascontiguousarray(answer.words[hit, word]).view(np.int64)
        return known, stored

    def _remember(self, rows: pa.RecordBatch, times: I64) -> None:
        """Writes the times of rows that pass, each into the slice of its time."""
        window = self.spec.window
        of_row = np.full(len(times), WHOLE, np.int64) if window is None else starts(times, window)
        for slice_us in np.unique(of_row).tolist():
            mine = of_row == slice_us
            self._write(slice_us, rows.filter(pa.array(mine)), times[mine])

    def _write(self, slice_us: int, rows: pa.RecordBatch, times: I64) -> None:
        state = self._slice(slice_us)
        self._make_room(state, rows.num_rows, heap_bytes(rows))
        before, probe, slot = state.table.nbytes, probe_of(self.layout, rows), self.layout.accumulators[0]
        words = np.zeros((len(probe), self.layout.width), np.uint64)
        words[:, : self.layout.key_width] = probe.words
        words[:, self.layout.key_width] = np.uint64(1 << slot.has_bit)
        words[:, slot.word] = times.view(np.uint64)
        ids, fresh = state.table.upsert(Run(probe.order, words, probe.heap))
        state.table.fill(ids, words, probe.heap)
        state.keys += len(fresh)
        self._table_bytes += state.table.nbytes - before

    # ── results out ──────────────────────────────────────────────────────────────────────────

    def _pass_on(self, rows: pa.RecordBatch, at: I64) -> None:
        schema = output_schema(self.spec)
        part = rows.take(pa.array(at))
        columns = [
            part.column(f.name) if f.name in part.schema.names else _zeros(len(at), f.type) for f in schema
        ]  # a window is only how expired keys are dropped: its bounds carry nothing
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        self._passed.append(batch)
        self._passed_bytes += batch.nbytes

    def results(self, watermark_us: int | None) -> Iterator[pa.RecordBatch]:
        """The rows that passed; of several blocks, only the last row of a key if the last one counts."""
        passed, self._passed, self._passed_bytes = self._passed, [], 0
        if self._work.keep == "last" and len(passed) > 1:
            passed = self._newest_of(passed)
        yield from passed

    def _newest_of(self, passed: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Drops rows of earlier blocks whose key a later block has: a batch gives one row per key."""
        table = pa.Table.from_batches(passed)
        names = [key.name for key in self.spec.keys]
        numbered = table.append_column("__at", pa.array(np.arange(table.num_rows)))
        newest = numbered.group_by(names).aggregate([("__at", "max")]).column("__at_max")
        at = pc.sort_indices(newest)
        batches: list[pa.RecordBatch] = table.take(newest.take(at)).combine_chunks().to_batches()
        return batches

    @property
    def needed_bytes(self) -> int:
        indexes_and_tables: int = super().needed_bytes
        return indexes_and_tables + self._passed_bytes


def _zeros(count: int, kind: pa.DataType) -> pa.Array:
    return pa.array(np.zeros(count, np.int64)).view(kind)
