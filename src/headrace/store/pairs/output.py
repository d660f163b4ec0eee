"""Results of a join as Arrow batches: pairs, or rows of one side beside nulls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.plan.spec import LEFT, RIGHT, output_schema
from headrace.plan.types import arrow_type
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.row.arrays import I64
from headrace.row.chunks import RESULT_ROWS
from headrace.row.run import Run
from headrace.store.rows.kept_layout import KeptLayout
from headrace.store.rows.kept_values import KeptValues

BYTES_MAX = 32 << 20  # of strings in a batch


@dataclass(frozen=True)
class Output:
    """Writes results of one operator."""

    layout: KeptLayout
    work: StreamJoin

    def pairs(self, sides: dict[int, tuple[Run, I64]]) -> Iterator[pa.RecordBatch]:
        """Results of row numbers per side; a side that is missing is null."""
        values = {side: (KeptValues(self.layout, run), numbers) for side, (run, numbers) in sides.items()}
        yield from self._within(values)

    def rows(self, side: int, run: Run) -> Iterator[pa.RecordBatch]:
        """Results of rows without a partner, or of which only the left side comes out."""
        for start in range(0, len(run), RESULT_ROWS):
            numbers = np.arange(start, min(start + RESULT_ROWS, len(run)), dtype=np.int64)
            yield from self.pairs({side: (run, numbers)})

    def _within(self, values: dict[int, tuple[KeptValues, I64]]) -> Iterator[pa.RecordBatch]:
        """Cuts results in halves until the strings of a part fit."""
        count = len(next(iter(values.values()))[1])
        if count > 1 and sum(one.string_bytes(numbers) for one, numbers in values.values()) > BYTES_MAX:
            for cut in (slice(0, count // 2), slice(count // 2, count)):
                yield from self._within({side: (one, at[cut]) for side, (one, at) in values.items()})
            return
        yield self._batch(values)

    def _batch(self, values: dict[int, tuple[KeptValues, I64]]) -> pa.RecordBatch:
        known, numbers = next(iter(values.values()))
        columns = [known.key(number, numbers) for number in range(len(self.layout.keys))]
        fields = {LEFT: self.work.left, RIGHT: self.work.right if self.work.returns_right else ()}
        for side in (LEFT, RIGHT):
            if side in values:
                of, at = values[side]
                columns += [of.column(field, at, None) for field in fields[side]]
            else:
                columns += [pa.nulls(len(numbers), arrow_type(field.type)) for field in fields[side]]
        return pa.RecordBatch.from_arrays(columns, schema=output_schema(self.layout.spec))
