"""What is replayed: the operator, its rows, and the hints of them.

A count and a sum per key stand for updates in place; `table` is a stream with a static table, as in q13.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.host.ahead.hints import hint_rows
from headrace.plan.spec import (
    HASH,
    LEFT,
    RIGHT,
    SIDE,
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    input_schema,
)
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.row.arrays import I64

_TABLE_BYTES = 200  # of a row of the table
_KEYS = (Field("k0", "int64", "key"),)
Rows = Callable[[I64], pa.RecordBatch]


@dataclass(frozen=True)
class Case:
    """One operator: how its state is loaded, and how rows and hints are made of keys."""

    spec: OperatorSpec
    loaded: Rows
    rows: Rows
    side: int | None = None

    def hints(self, hashes: I64) -> pa.RecordBatch:
        """Hints for rows with these hashes."""
        return hint_rows(hashes.reshape(-1, 1), self.side)


def hashes_of(keys: I64) -> I64:
    """Hashes of keys: those of a partition are spread evenly."""
    mixed = (keys.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(29))).view(np.int64)


def _spec(name: str, inputs: tuple[Field, ...], work: Fold | StreamJoin) -> OperatorSpec:
    return OperatorSpec(
        name=name,
        keys=_KEYS,
        inputs=inputs,
        work=work,
        window=None,
        emit="changes",
        timed=False,
        delays_ms=(),
        partitions=1,
        store="aar" if isinstance(work, StreamJoin) else "rmw",
    )


COUNTS = _spec(
    "replay",
    (Field("v0", "int64", "amount"),),
    Fold((Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64"))),
)


def _counted(keys: I64) -> pa.RecordBatch:
    columns = [pa.array(hashes_of(keys)), pa.array(keys), pa.array(np.ones(len(keys), np.int64))]
    return pa.RecordBatch.from_arrays(columns, [HASH, "k0", "v0"])


_NUMBER, _TEXT, _GENERATION = Field("v0", "int64"), Field("v1", "string"), Field("v2", "int64")
TABLE = _spec(
    "table",
    (_NUMBER, _TEXT, _GENERATION),
    StreamJoin("inner", (_NUMBER,), (_TEXT,), bucket_us=2, meets="arrival", generation="v2"),
)


def _sided(keys: I64, side: int) -> pa.RecordBatch:
    text = pa.array(["x" * _TABLE_BYTES]).take(pa.array(np.zeros(len(keys), np.int64)))
    columns = {
        HASH: pa.array(hashes_of(keys)),
        SIDE: pa.array(np.full(len(keys), side, np.int8)),
        "k0": pa.array(keys),
        "v0": pa.array(keys),
        "v1": text if side == RIGHT else pa.nulls(len(keys), pa.string()),
        "v2": pa.array(np.full(len(keys), 2, np.int64)),
    }
    schema = input_schema(TABLE)
    return pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in schema], schema=schema
    )


def _table_rows(keys: I64) -> pa.RecordBatch:
    return _sided(keys, RIGHT)


def _stream_rows(keys: I64) -> pa.RecordBatch:
    return _sided(keys, LEFT)


UPDATES = Case(COUNTS, _counted, _counted)
LOOKUPS = Case(TABLE, _table_rows, _stream_rows, LEFT)
