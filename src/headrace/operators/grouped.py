"""The rows of whole groups themselves, for a function of the user that runs in Spark's worker.

Rows of one group come one after another, by event time. GROUP separates groups: it changes from each
group to the next over all chunks of one epoch, so that the worker can put a group together again that
batches cut in two. A window that is one group comes in chunks, each by event time: the worker, which must
hold the group anyway, merges them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.operators.holistic_order import sort_groups
from headrace.plan.spec import output_schema
from headrace.row.arrays import I64
from headrace.row.run import Run
from headrace.store.rows.arrow import array_of
from headrace.store.rows.groups import Groups, instants, is_one_group
from headrace.store.rows.kept_layout import KeptLayout, input_array, key_array, subset, time_key

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20


class GroupedRows:
    """Groups as their rows; a `Computation`."""

    def __init__(self, layout: KeptLayout) -> None:
        self._layout = layout
        self._numbered = 0
        self._window: tuple[int, int] | None = None  # of the last chunk, where a window is one group

    def __call__(self, rows: Run, groups: Groups) -> Iterator[pa.RecordBatch]:
        if not len(groups):
            return
        if is_one_group(self._layout.spec):
            window = int(groups.starts_us[0]), int(groups.ends_us[0])
            self._numbered -= 1 if window == self._window else 0
            self._window = window
        times = time_key(np.ascontiguousarray(rows.words[:, self._layout.time_word]))
        order = sort_groups(groups, [times]).rows
        limit = max(1, min(BATCH_ROWS, BATCH_BYTES * len(order) // max(1, rows.nbytes)))
        for start in range(0, len(order), limit):
            yield self._batch(rows, groups, order[start : start + limit])
        self._numbered += len(groups)

    def _batch(self, rows: Run, groups: Groups, at: I64) -> pa.RecordBatch:
        part, of_row = subset(self._layout, rows, at), groups.of_row[at]
        columns = [key_array(slot, part) for slot in self._layout.keys]
        columns += [instants(groups.starts_us[of_row]), instants(groups.ends_us[of_row])]
        columns += [pa.array(of_row + self._numbered)]
        columns += [array_of("timestamp", part.words, self._layout.time_word, part.heap, None)]
        columns += [input_array(slot, part) for slot in self._layout.inputs]
        return pa.RecordBatch.from_arrays(columns, schema=output_schema(self._layout.spec))
