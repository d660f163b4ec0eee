"""Checks rows that come from outside before anything follows their offsets.

Arrow reads a message without a look at its offsets. Descending ones would give values a negative length,
and the code that copies values would leave its memory.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.errors import TryAgain


def checked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows themselves; raises `TryAgain` if their buffers do not fit their lengths and offsets."""
    try:
        rows.validate()
    except pa.ArrowInvalid as error:
        raise _damaged(str(error)) from None
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        width = _offset_type(column.type)
        if width is None or len(column) == 0:
            continue
        offsets = np.frombuffer(column.buffers()[1], width)[column.offset : column.offset + len(column) + 1]
        if (offsets[1:] < offsets[:-1]).any():
            raise _damaged(f"the offsets of {name} descend")
    return rows


def _offset_type(kind: pa.DataType) -> type[np.signedinteger] | None:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.int32
    return np.int64 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else None


def _damaged(problem: str) -> TryAgain:
    return TryAgain(
        f"a task sent rows that are no valid Arrow data: {problem}",
        hint="nothing was applied, and the task is tried again; if it repeats, compare the Arrow versions "
        "in the executors and in the state host",
    )
