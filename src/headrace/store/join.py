"""What a windowed join makes of whole groups of rows: every pair, and for outer joins the rows without one.

Pure computation, shared by all stores that keep rows. Pairs are written out in batches of a bounded number
of rows and bytes, so that a key with a million pairs takes no more memory than a million keys with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels import join as kernel
from headrace.kernels.pack import I64
from headrace.spec import SIDE, Field, Join, OperatorSpec, output_schema
from headrace.types import VARIABLE, arrow_type

PAIRS_MAX = 1 << 16  # pairs per Arrow batch of results
PAIR_BYTES_MAX = 32 << 20  # of strings in a batch


@dataclass(frozen=True)
class Groups:
    """Which group each row is of, and each group's window in microseconds."""

    of_row: I64
    starts_us: I64
    ends_us: I64

    def __len__(self) -> int:
        return len(self.starts_us)


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


def joined(
    spec: OperatorSpec,
    rows: pa.RecordBatch,
    groups: Groups,
    pairs_max: int = PAIRS_MAX,
    bytes_max: int = PAIR_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Batches of `output_schema` from rows of `input_schema`; the rows of a group must all be there."""
    assert spec.join is not None
    held = _row_bytes(spec, rows)
    for pairs in _pairs(spec.join, rows, groups, pairs_max):
        for part in _within(pairs, held, bytes_max):
            yield _batch(spec, spec.join, rows, groups, part)


def _pairs(join: Join, rows: pa.RecordBatch, groups: Groups, pairs_max: int) -> Iterator[_Pairs]:
    keeps = join.how in ("left", "full"), join.how in ("right", "full")
    sides = np.ascontiguousarray(rows.column(SIDE).to_numpy(zero_copy_only=False), np.int8)
    order, begins = kernel.arrange(np.ascontiguousarray(groups.of_row), sides, len(groups))
    before = kernel.count(begins, *keeps)
    for start in range(0, int(before[-1]), pairs_max):
        n = min(pairs_max, int(before[-1]) - start)
        lefts, rights, of = (np.empty(n, np.int64) for _ in range(3))
        kernel.write(order, begins, before, *keeps, start, lefts, rights, of)
        yield _Pairs(lefts, rights, of)


def _row_bytes(spec: OperatorSpec, rows: pa.RecordBatch) -> I64 | None:
    """Bytes of strings in each row, with a zero behind the last for "no row"; None without strings."""
    names = [field.name for field in (*spec.keys, *spec.inputs) if field.type in VARIABLE]
    if not names:
        return None
    held = np.zeros(rows.num_rows + 1, np.int64)
    for name in names:
        lengths = pc.binary_length(rows.column(name)).fill_null(0)
        held[:-1] += lengths.to_numpy(zero_copy_only=False)
    return held


def _within(pairs: _Pairs, held: I64 | None, bytes_max: int) -> Iterator[_Pairs]:
    """The pairs, cut in halves until a part's strings fit."""
    if held is None or len(pairs) <= 1 or held[pairs.lefts].sum() + held[pairs.rights].sum() <= bytes_max:
        yield pairs
        return
    half = len(pairs) // 2
    yield from _within(pairs.part(0, half), held, bytes_max)
    yield from _within(pairs.part(half, len(pairs)), held, bytes_max)


def _batch(
    spec: OperatorSpec, join: Join, rows: pa.RecordBatch, groups: Groups, pairs: _Pairs
) -> pa.RecordBatch:
    either = pa.array(np.where(pairs.lefts >= 0, pairs.lefts, pairs.rights))
    columns = [rows.column(field.name).take(either) for field in spec.keys]
    columns += [_times(bounds[pairs.groups]) for bounds in (groups.starts_us, groups.ends_us)]
    columns += _side(join.left, rows, pairs.lefts) + _side(join.right, rows, pairs.rights)
    schema = output_schema(spec)
    return pa.RecordBatch.from_arrays(
        [_as(c, f) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def _side(fields: tuple[Field, ...], rows: pa.RecordBatch, taken: I64) -> list[pa.Array]:
    missing = taken < 0
    numbers = pa.array(taken, mask=missing if missing.any() else None)
    return [rows.column(field.name).take(numbers) for field in fields]


def _times(micros: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(micros).view(arrow_type("timestamp"))


def _as(column: pa.Array, field: pa.Field) -> pa.Array:
    """The column as the schema says it; a timestamp's zone says nothing about its 64 bits."""
    return column if column.type == field.type else column.cast(field.type)
