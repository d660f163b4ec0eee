"""Initial state in a task's rows: a struct column that is null in rows of the stream.

INITIAL = struct<c0, c1, … the columns of the initial state, g0, g1, … its grouping columns>
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.columns import HASH
from headrace.spark.processors.blocks import Stage

INITIAL = "__initial"


def parted(
    stage: Stage, batches: Iterable[pa.RecordBatch]
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Rows of the initial state under the names of `stage`, and rows of the stream."""
    initial, rows = [], []
    for batch in batches:
        of_state = pc.is_valid(batch.column(INITIAL))
        initial.append(_unfolded(stage, batch.filter(of_state)))
        rows.append(batch.filter(pc.invert(of_state)).drop_columns([INITIAL]))
    return [part for part in initial if part.num_rows], [part for part in rows if part.num_rows]


def _unfolded(stage: Stage, batch: pa.RecordBatch) -> pa.RecordBatch:
    folded = batch.column(INITIAL)
    names = [field.name for field in folded.type]
    keys = [HASH, *stage.wire_keys]
    columns = [*(batch.column(name) for name in keys), *folded.flatten()]
    return pa.RecordBatch.from_arrays(columns, names=[*keys, *names])
