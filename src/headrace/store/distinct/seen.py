"""Values that a group has seen: an RMW store whose keys are a group and a value, without anything else.

Invariants: a value is new once per group and slice. Of the rows of a block, the first one has it.
Threads: as `store.base.contract` describes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.kernels.core.order import by_hash
from headrace.plan.spec import HASH, TIME, Field, Fold, OperatorSpec
from headrace.row.arrays import I64, U64, Flags
from headrace.store.fold.rmw import RmwStore
from headrace.store.rows.arrow import heap_bytes, probe_of
from headrace.store.rows.hashing import hashes_of
from headrace.store.rows.slices import WHOLE, is_closed, starts, times_of
from headrace.store.rows.take import rows_at

VALUE = "d0"
_GROUP_BITS = np.uint64(54)  # the top ten bits decide the partition, and stay those of the group
_LOW = np.uint64((1 << 54) - 1)


def seen_spec(spec: OperatorSpec, column: str) -> OperatorSpec:
    """The operator of the values of one input: its keys are those of the groups, and the value."""
    kind = next(field.type for field in spec.inputs if field.name == column)
    keys = (*spec.keys, Field(VALUE, kind))
    return replace(spec, keys=keys, inputs=(), work=Fold(()), emit="changes", store="rmw", shown=())


@dataclass
class SeenStore(RmwStore):
    """The values of one input by group."""

    def new_values(self, rows: pa.RecordBatch, column: str) -> Flags:
        """Which rows bring a value that their group has not seen; rows of closed windows bring none."""
        new = np.zeros(rows.num_rows, np.bool_)
        values = rows.column(column)
        at = np.flatnonzero(np.asarray(values.is_valid()))
        if not len(at):
            return new
        part = rows.take(pa.array(at))
        of_row = self._slices_of(part)
        for slice_us in np.unique(of_row).tolist():
            if is_closed(slice_us, self.spec.window, self.watermark_us):
                continue
            mine = np.flatnonzero(of_row == slice_us)
            new[at[mine[self._first_times(slice_us, part.take(pa.array(mine)), column)]]] = True
        return new

    def _slices_of(self, rows: pa.RecordBatch) -> I64:
        window = self.spec.window
        return np.full(rows.num_rows, WHOLE, np.int64) if window is None else starts(times_of(rows), window)

    def _first_times(self, slice_us: int, rows: pa.RecordBatch, column: str) -> I64:
        """Positions of the rows with values that are new in the slice."""
        probe = probe_of(self.layout, self._keyed(rows, column))
        state = self._slice(slice_us)
        absent = np.flatnonzero(state.table.find(probe) < 0)
        if len(absent) and not state.complete:
            ordered = absent[by_hash(probe.order[absent])]
            answer = self._look_up(slice_us, rows_at(probe, ordered))
            absent = np.sort(ordered[~answer.mask])
        if not len(absent):
            return absent
        self._make_room(state, len(absent), heap_bytes(rows))
        before = state.table.nbytes
        ids, fresh = state.table.upsert(rows_at(probe, absent))
        state.keys += len(fresh)
        self._table_bytes += state.table.nbytes - before
        first: I64 = absent[np.unique(ids, return_index=True)[1]]
        return first

    def _keyed(self, rows: pa.RecordBatch, column: str) -> pa.RecordBatch:
        """Rows with the value as their last key, and the hash of group and value."""
        keys = [field.name for field in self.spec.keys[:-1]]
        value, kind = rows.column(column), self.spec.keys[-1].type
        groups = np.asarray(rows.column(HASH)).view(np.uint64)
        values: U64 = hashes_of([(value, kind)], rows.num_rows)
        mixed = (groups >> _GROUP_BITS << _GROUP_BITS) | ((groups * np.uint64(31) ^ values) & _LOW)
        columns = {HASH: pa.array(mixed.view(np.int64))}
        columns |= {TIME: rows.column(TIME)} if self.spec.timed else {}
        columns |= {name: rows.column(name) for name in keys}
        return pa.RecordBatch.from_pydict({**columns, VALUE: value})
