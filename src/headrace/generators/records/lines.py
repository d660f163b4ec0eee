"""Records as lines of text of a fixed width, built as a byte matrix: no Python string per record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.generators.nexmark.draws import I64

Bytes = npt.NDArray[np.uint8]

RECORD_BYTES = 65
_COMMA = ord(",")


def digits(values: I64, width: int, decimals: int = 0) -> Bytes:
    """Decimal digits with leading zeros; the last `decimals` of them come after a point."""
    whole = width - (1 if decimals else 0)
    powers = 10 ** np.arange(whole - 1, -1, -1, dtype=np.int64)
    figures = (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    if decimals:
        figures = np.insert(figures, whole - decimals, ord("."), axis=1)
    return figures


def moments(seconds: I64) -> Bytes:
    """`2012-05-01T00:00:00.000Z` for seconds since 1970."""
    distinct, which = np.unique(seconds, return_inverse=True)
    spelled = np.char.add(np.datetime_as_string(distinct.astype("datetime64[s]"), unit="ms"), "Z")
    return spelled.astype("S24").view(np.uint8).reshape(-1, 24)[which]


def lines(fields: Sequence[Bytes]) -> pa.Array:
    """The fields of every record, with commas in between, as strings of one length."""
    count = len(fields[0])
    comma = np.full((count, 1), _COMMA, np.uint8)
    parts = [part for field in fields for part in (field, comma)][:-1]
    matrix = np.ascontiguousarray(np.concatenate(parts, axis=1))
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(matrix.shape[1])
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(matrix))
