"""From results before and after an epoch to changes: inserts, updates as pairs, deletes. Pure functions.

The id of a result names the row of the other side that it replaces. Ids ascend and occur once per side.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from headrace.plan.columns import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from headrace.row.arrays import I64
from headrace.store.changes.equal import equal_rows

_ORDER = np.array([3, 1, 2, 0])  # of the kinds within one id: what goes comes before what is new


def changes(
    before: pa.RecordBatch,
    before_ids: I64,
    after: pa.RecordBatch,
    after_ids: I64,
    schema: pa.Schema,
    hidden: Collection[str] = (),
) -> pa.RecordBatch:
    """The changes as a batch of `schema`: the columns of results, then the kind.

    Rows that differ in hidden columns only are equal.
    """
    _, at_before, at_after = np.intersect1d(before_ids, after_ids, assume_unique=True, return_indices=True)
    matched = before.take(pa.array(at_before)), after.take(pa.array(at_after))
    shown = [name for name in before.schema.names if name not in hidden]
    changed = ~equal_rows(*(rows.select(shown) for rows in matched))
    gone, new = np.ones(len(before_ids), np.bool_), np.ones(len(after_ids), np.bool_)
    gone[at_before], new[at_after] = False, False
    parts = [
        (before, before_ids, np.flatnonzero(gone), DELETE),
        (before, before_ids, at_before[changed], UPDATE_BEFORE),
        (after, after_ids, at_after[changed], UPDATE_AFTER),
        (after, after_ids, np.flatnonzero(new), INSERT),
    ]
    ids = np.concatenate([of[at] for _, of, at, _ in parts])
    kinds = np.concatenate([np.full(len(at), kind, np.int8) for _, _, at, kind in parts])
    rows = pa.concat_batches([rows.take(pa.array(at)) for rows, _, at, _ in parts])
    order = pa.array(np.lexsort((_ORDER[kinds], ids)))
    columns = [*(column.take(order) for column in rows.columns), pa.array(kinds).take(order)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
