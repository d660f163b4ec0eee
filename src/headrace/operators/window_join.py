"""What a windowed join makes of whole groups of rows: every pair, and for outer joins the rows without one.

Pure computation, shared by all stores that keep rows. Pairs are written out in batches of a bounded number
of rows and bytes, so that a key with a million pairs takes no more memory than a million keys with one.
Only the columns of rows that come out are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernels.groups import join as kernel
from headrace.plan.spec import WindowJoin, output_schema
from headrace.row.arrays import I64
from headrace.row.run import Run
from headrace.store.rows.groups import Computation, Groups, instants
from headrace.store.rows.kept_layout import KeptLayout, sides_in
from headrace.store.rows.kept_values import KeptValues, present_of

PAIRS_MAX = 1 << 16  # pairs per Arrow batch of results
PAIR_BYTES_MAX = 32 << 20  # of strings in a batch


@dataclass(frozen=True)
class _Pairs:
    """Row numbers of both sides, -1 where a side has none, and the group of each pair."""

    lefts: I64
    rights: I64
    groups: I64

    def __len__(self) -> int:
        return len(self.lefts)

    def part(self, start: int, end: int) -> _Pairs:
        return _Pairs(self.lefts[start:end], self.rights[start:end], self.groups[start:end])


def join_of(layout: KeptLayout, pairs_max: int = PAIRS_MAX, bytes_max: int = PAIR_BYTES_MAX) -> Computation:
    """The computation of an operator that is a join."""
    join = layout.spec.work
    assert isinstance(join, WindowJoin)

    def joined(rows: Run, groups: Groups) -> Iterator[pa.RecordBatch]:
        values = KeptValues(layout, rows)
        for pairs in _pairs(join, sides_in(layout, rows).astype(np.int8), groups, pairs_max):
            for part in _within(pairs, values, bytes_max):
                yield _batch(join, values, groups, part)

    return joined


def _pairs(join: WindowJoin, sides: np.ndarray, groups: Groups, pairs_max: int) -> Iterator[_Pairs]:
    keeps = join.how in ("left", "full"), join.how in ("right", "full")
    order, begins = kernel.arrange(groups.of_row, sides, len(groups))
    before = kernel.count(begins, *keeps)
    total = int(before[-1])
    for start in range(0, total, pairs_max):
        lefts, rights, of = (np.empty(min(pairs_max, total - start), np.int64) for _ in range(3))
        kernel.write(order, begins, before, *keeps, start, lefts, rights, of)
        yield _Pairs(lefts, rights, of)


def _within(pairs: _Pairs, values: KeptValues, bytes_max: int) -> Iterator[_Pairs]:
    """The pairs, cut in halves until a part's strings fit."""
    if len(pairs) <= 1 or values.string_bytes(pairs.lefts) + values.string_bytes(pairs.rights) <= bytes_max:
        yield pairs
        return
    half = len(pairs) // 2
    yield from _within(pairs.part(0, half), values, bytes_max)
    yield from _within(pairs.part(half, len(pairs)), values, bytes_max)


def _batch(join: WindowJoin, values: KeptValues, groups: Groups, pairs: _Pairs) -> pa.RecordBatch:
    present = present_of(pairs.lefts)
    either = pairs.lefts if present is None else np.where(present, pairs.lefts, pairs.rights)
    columns = [values.key(number, either) for number in range(len(values.layout.keys))]
    columns += [instants(bounds[pairs.groups]) for bounds in (groups.starts_us, groups.ends_us)]
    for fields, numbers in ((join.left, pairs.lefts), (join.right, pairs.rights)):
        present = present_of(numbers)
        rows = numbers if present is None else np.where(present, numbers, 0)
        columns += [values.column(field, rows, present) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=output_schema(values.layout.spec))
