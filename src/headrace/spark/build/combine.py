"""Combining rows in the workers that read them, before they are shuffled: fewer rows reach the operator.

A row on the wire of a combined operator stands for ROWS input rows of one key and slice. Its columns `p0`,
`p1`, … hold one value per accumulator: the count, sum, least or largest value. An input row is a combined
row by itself, so rows pass unchanged if combining does not pay or a sum might leave its type. Memory:
`WAITING_MAX` combined rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.options import Combine
from headrace.plan.spec import (
    HASH,
    KEYLESS_HASH,
    ROWS,
    TIME,
    Accumulator,
    OperatorSpec,
    input_schema,
    partial_name,
)
from headrace.store.rows.slices import starts, times_of

RowBatches = Iterator[pa.RecordBatch]

WAITING_MAX = 1 << 16
WORTH = 0.5  # combined rows are at most this part of the rows, or rows go on as they are
_INT64_END = 1 << 63


def combines(spec: OperatorSpec, mode: Combine) -> bool:
    """Whether rows are combined: if they can be, and the user requests it or all rows share a partition."""
    if mode == "off" or (spec.window is not None and spec.window.session):
        return False
    return (mode == "on" or not spec.keys) and spec.work.can_combine


def combine_task(spec: OperatorSpec) -> Callable[[RowBatches], RowBatches]:
    """The function to give to `mapInArrow` ahead of the shuffle; `spec` is combined."""

    def combine(batches: RowBatches) -> RowBatches:
        from headrace.spark.bridge.worker import sparing
        from headrace.spark.build.combine import Combiner

        return sparing(Combiner(spec).run(batches))

    combine.__name__ = f"combine_{spec.name}"
    return combine


class Combiner:
    """Combines the rows of one task."""

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec, self._schema = spec, input_schema(spec)
        self._groups = [name for name in (HASH, TIME) if name in self._schema.names]
        self._groups += [field.name for field in spec.keys]
        self._how = [(ROWS, "sum")]
        for index, accumulator in enumerate(spec.work.accumulators):
            how = "sum" if accumulator.kind == "count" else accumulator.kind
            self._how.append((partial_name(index), how))
        self._waiting: list[pa.Table] = []

    def run(self, batches: RowBatches) -> RowBatches:
        for batch in batches:
            if batch.num_rows:
                yield from self._take(pa.Table.from_batches([self.partial(batch)]))
        yield from self._together().to_batches()

    def partial(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Each input row as a combined row."""
        ones = pa.array(np.ones(batch.num_rows, np.int64))
        columns = {HASH: _hashes(batch), ROWS: ones}
        if self._spec.window is not None:
            columns[TIME] = pa.array(starts(times_of(batch), self._spec.window)).cast(
                self._schema.field(TIME).type
            )
        columns |= {field.name: batch.column(field.name) for field in self._spec.keys}
        for index, accumulator in enumerate(self._spec.work.accumulators):
            columns[partial_name(index)] = _value(accumulator, batch, ones)
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )

    def _take(self, rows: pa.Table) -> RowBatches:
        combined = self._combined(rows)
        if combined.num_rows > WORTH * rows.num_rows:
            yield from rows.to_batches()
            return
        self._waiting.append(combined)
        if sum(part.num_rows for part in self._waiting) > WAITING_MAX:
            whole = self._together()
            if whole.num_rows > WORTH * WAITING_MAX:
                yield from whole.to_batches()
            else:
                self._waiting = [whole]

    def _together(self) -> pa.Table:
        """Takes all waiting rows, combined."""
        waiting, self._waiting = self._waiting, []
        return self._combined(pa.concat_tables(waiting)) if waiting else self._schema.empty_table()

    def _combined(self, rows: pa.Table) -> pa.Table:
        if not self._fits(rows):
            return rows
        grouped = rows.group_by(self._groups, use_threads=False).aggregate(self._how)
        made = {name: f"{name}_{how}" for name, how in self._how}
        columns = [grouped.column(made.get(name, name)) for name in self._schema.names]
        return pa.table(
            [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )

    def _fits(self, rows: pa.Table) -> bool:
        """Whether no sum of whole numbers can leave its type."""
        for index, accumulator in enumerate(self._spec.work.accumulators):
            if accumulator.kind == "sum" and accumulator.type == "int64":
                bounds = pc.min_max(rows.column(partial_name(index))).as_py()
                largest = max(abs(bound) for bound in (bounds["min"] or 0, bounds["max"] or 0))
                if largest * rows.num_rows >= _INT64_END:
                    return False
        return True


def _hashes(batch: pa.RecordBatch) -> pa.Array:
    """The hash of each row's key; rows without keys need not bring it."""
    at = batch.schema.get_field_index(HASH)
    return pa.repeat(pa.scalar(KEYLESS_HASH, pa.int64()), batch.num_rows) if at < 0 else batch.column(at)


def _value(accumulator: Accumulator, batch: pa.RecordBatch, ones: pa.Array) -> pa.Array:
    """What each row is for an accumulator."""
    if accumulator.kind != "count":
        return batch.column(accumulator.input)
    if accumulator.input is None:
        return ones
    return batch.column(accumulator.input).is_valid().cast(pa.int64())
