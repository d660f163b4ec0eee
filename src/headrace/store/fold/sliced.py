"""The tables of an RMW store: one per slice, within the partition's share of memory.

Invariants: `_table_bytes` is the sum over all tables. A slice that lost a row by eviction is not complete.
There may be very many windows, so a slice without rows in memory has no table, only its number of keys.
Threads: one transaction at a time calls in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.cache.policy import Policy, TimestampAware
from headrace.kernels.core.order import by_hash
from headrace.plan.spec import OperatorSpec, rows_in
from headrace.row.arrays import Ids
from headrace.row.run import Run
from headrace.store.base.files import FileKind, Files, Sections
from headrace.store.base.room import EVICT_TO, STAGED_MAX, evict, make_room
from headrace.store.base.share import Share
from headrace.store.base.waits import StateWaits
from headrace.store.fold.looking import LookingStore, SliceState
from headrace.store.fold.partials import Partials
from headrace.store.rows.arrow import heap_bytes, probe_of
from headrace.store.rows.slices import cut, is_closed
from headrace.store.segments.reader import Segment, announce, index_bytes
from headrace.store.tables.table import Table


@dataclass
class SlicedStore(LookingStore):
    """State rows of one partition in tables; rows are folded in, evicted and spilled."""

    spec: OperatorSpec
    share: Share
    files: Files
    segments: list[Segment]
    watermark_us: int | None
    known_keys: int = 0
    late_rows: int = 0
    spilled: list[Segment] = field(default_factory=list)
    kind_name: str = "rows"  # of its segments
    policy: Policy = field(default_factory=TimestampAware)
    waits: StateWaits = field(default_factory=StateWaits)
    _slices: dict[int, SliceState] = field(default_factory=dict)
    _parked: dict[int, int] = field(default_factory=dict)  # keys of windows whose table was dropped
    _table_bytes: int = 0  # of all tables; added up anew for every slice it would be quadratic
    _runs: dict[int, Run] = field(default_factory=dict)
    _block: int = 0  # blocks of rows that were folded

    @cached_property
    def partials(self) -> Partials:
        return Partials(self.layout, self.spec.window)

    @cached_property
    def _kind(self) -> FileKind:
        return FileKind(self.kind_name, self.layout)

    # ── rows in ──────────────────────────────────────────────────────────────────────────────

    @property
    def tables(self) -> dict[int, Table]:
        """The tables in memory, by slice."""
        return {slice_us: state.table for slice_us, state in self._slices.items()}

    @property
    def slices(self) -> set[int]:
        """The slices with a table in memory, or with a number of keys where the table was dropped."""
        return {*self._slices, *self._parked}

    @property
    def looks_up(self) -> bool:
        """Whether a table lacks keys that are stored."""
        return not all(state.complete for state in self._slices.values())

    def announce(self, rows: pa.RecordBatch) -> None:
        """Of a running aggregate, whose slice is known before its rows are cut."""
        state = self._slices.get(0) if self.spec.window is None else None
        if state is None or state.complete or not any(segment.is_far for segment in self.segments):
            return
        probe = probe_of(self.layout, rows)
        missing = probe.order[state.table.find(probe) < 0]
        announce([(segment, 0) for segment in self.segments], np.unique(missing))

    def apply(self, rows: pa.RecordBatch) -> None:
        """Fold rows into the state; rows of closed windows are dropped and counted."""
        kept = 0
        self._block += 1
        for slice_us, part in cut(rows, self.spec.window, self.watermark_us):
            self._fold(slice_us, part)
            kept += rows_in(part)
        self.late_rows += rows_in(rows) - kept

    def _fold(self, slice_us: int, rows: pa.RecordBatch) -> None:
        state = self._slice(slice_us)
        self.partials.forget(slice_us)
        self._make_room(state, rows.num_rows, heap_bytes(rows))
        before = state.table.nbytes
        state.table.use(self.policy.used(self._block, self._latest_us(rows)))
        row_ids, fresh = state.table.upsert(probe_of(self.layout, rows))
        if len(fresh):
            state.keys += len(fresh) - self._load(slice_us, state, fresh)
        self._changing(slice_us, state, row_ids)
        state.table.accumulate(row_ids, rows)
        self._table_bytes += state.table.nbytes - before

    def _changing(self, slice_us: int, state: SliceState, row_ids: Ids) -> None:
        """Called before rows change, with their stored values loaded."""

    def _slice(self, slice_us: int) -> SliceState:
        state = self._slices.get(slice_us)
        if state is None:
            keys = self._parked.pop(slice_us, self._stored_keys(slice_us))
            state = SliceState(self._table(), complete=not self._is_stored(slice_us), keys=keys)
            self._slices[slice_us] = state
            self._table_bytes += state.table.nbytes
        return state

    def _table(self) -> Table:
        return Table(self.layout, second_chance=self.policy.second_chance)

    def _stored_keys(self, slice_us: int) -> int:
        """Keys of the slice on disk: exact for a lone slice, an upper bound if segments overlap."""
        if self.spec.window is None:
            return self.known_keys
        stored = (*self.segments, *self.spilled)
        return sum(segment.sections[slice_us].rows for segment in stored if slice_us in segment.sections)

    def _load(self, slice_us: int, state: SliceState, fresh: np.ndarray) -> int:
        """Bring the stored values of freshly inserted keys into the table; how many had one."""
        if state.complete:
            return 0
        ordered = fresh[by_hash(state.table.hashes[fresh])]
        answer = self._look_up(slice_us, state.table.keys_of(ordered))
        hit = np.flatnonzero(answer.mask)
        if len(hit):
            state.table.fill(ordered[hit], answer.words[hit], answer.heap)
        return len(hit)

    # ── memory ───────────────────────────────────────────────────────────────────────────────

    @property
    def memory_bytes(self) -> int:
        return self.needed_bytes + self.lookahead.nbytes

    @property
    def needed_bytes(self) -> int:
        indexes = index_bytes((*self.segments, *self.spilled))
        return self._table_bytes + self.partials.nbytes + indexes

    @property
    def keys(self) -> int:
        """Rows of state, as far as known without reading the disk."""
        return self.keys_after(self.watermark_us)

    def keys_after(self, watermark_us: int | None) -> int:
        """Rows of state once the windows that `watermark_us` closes are gone."""
        live = self._stored_slices() | set(self._slices)
        return sum(self._keys_of(s) for s in live if not is_closed(s, self.spec.window, watermark_us))

    def _keys_of(self, slice_us: int) -> int:
        state = self._slices.get(slice_us)
        if state is not None:
            return state.keys
        parked = self._parked.get(slice_us)
        return self._stored_keys(slice_us) if parked is None else parked

    def _stored_slices(self) -> set[int]:
        return {s for segment in (*self.segments, *self.spilled) for s in segment.sections}

    def _make_room(self, state: SliceState, rows: int, heap: int) -> None:
        """Evict clean rows, and spill dirty ones where that is not enough, until the rows fit."""
        make_room(
            self,
            lambda: state.table.growth_bytes(rows, heap),
            self.partials.clear,
            lambda: self._evict_for(state, rows, heap),
            self.lookahead.drop,
            self.spill,
            lambda: self._evict_for(state, rows, heap),
        )

    def _make_room_ahead(self, staged_bytes: int) -> None:
        staged = min(staged_bytes, STAGED_MAX.of(self.share) - self.lookahead.nbytes)
        make_room(self, lambda: max(0, staged), self.partials.clear, self._evict_all)

    def _evict_for(self, state: SliceState, rows: int, heap: int) -> None:
        """Evict from all tables, from the one that is about to grow last."""
        self._evict([other for other in self._slices.values() if other is not state])
        self._park(state)
        rest = self.memory_bytes - state.table.nbytes
        self._evict_from(state, max(0, EVICT_TO.of(self.share) - rest), rows, heap)

    def _evict(self, states: Iterable[SliceState]) -> None:
        """Drop clean rows, the largest tables first."""
        largest = sorted(states, key=lambda state: -state.table.nbytes)
        evict(self, largest, lambda one, excess: self._evict_from(one, one.table.nbytes - excess), EVICT_TO)

    def _evict_all(self) -> None:
        self._evict(self._slices.values())
        self._park()

    def _evict_from(self, state: SliceState, bytes_max: int, rows: int = 0, heap: int = 0) -> int:
        """Drop clean rows until the table has at most `bytes_max`; how many bytes that frees."""
        before = state.table.nbytes
        if state.table.evict(max(0, bytes_max), rows, heap):
            state.complete = False
        self._table_bytes += state.table.nbytes - before
        return before - state.table.nbytes

    def _park(self, kept: SliceState | None = None) -> None:
        """Drop the tables of windows that have no row in memory: an empty table takes memory too."""
        if self.spec.window is None:
            return
        empty = [s for s, state in self._slices.items() if state is not kept and not len(state.table)]
        for slice_us in empty:
            self._parked[slice_us] = self._slices[slice_us].keys
            self._drop(slice_us)

    def _drop(self, slice_us: int) -> None:
        state = self._slices.pop(slice_us, None)
        self._table_bytes -= 0 if state is None else state.table.nbytes

    def spill(self) -> None:
        """Write dirty rows to a segment of the running epoch, so that they may be evicted."""
        sections = self._dirty_sections(lambda _: True)
        if sections:
            begun_ms = self.waits.now_ms()
            self.spilled.append(self.files.spill(self._kind, sections))
            self._settle()
            self.waits.spill_ms += self.waits.now_ms() - begun_ms

    def _settle(self) -> None:
        self.lookahead.flushed(self._dirty_hashes)
        self._runs.clear()
        for state in self._slices.values():
            state.table.settle()

    def _dirty_sections(self, live: Callable[[int], bool]) -> Sections:
        dirty = sorted(s for s, state in self._slices.items() if state.table.dirty_count and live(s))
        return [(slice_us, [self._dirty_run(slice_us)]) for slice_us in dirty]
