"""An operator's state by key, for its page: rows of the last published version, read from storage.

Batches are read until enough rows match, so that a look at large state takes neither memory nor long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

import pyarrow as pa
import pyarrow.compute as pc

from headrace import inspect
from headrace.errors import HeadraceError

ROWS_SHOWN = 50
ROWS_SCANNED = 2_000_000


def browse(checkpoint: str, operator: str, key: str, rows: int) -> str:
    """Rows whose columns contain a text, as an HTML table, or why there are none."""
    try:
        return rendered(*find(state_batches(checkpoint, operator), key, rows))
    except HeadraceError as error:
        return f"<div class=none>{escape(str(error))}</div>"


def state_batches(checkpoint: str, operator: str) -> Iterator[pa.RecordBatch]:
    """The state of an operator, as its last published version has it."""
    with inspect.open(checkpoint) as state:
        yield from state.table(operator).to_batches()


def find(batches: Iterable[pa.RecordBatch], key: str, rows: int) -> tuple[list[pa.RecordBatch], int]:
    """The first rows that match, and how many rows were looked at."""
    kept: list[pa.RecordBatch] = []
    scanned = 0
    for batch in batches:
        scanned += batch.num_rows
        kept.append(batch if not key else batch.filter(contains(batch, key)))
        if sum(part.num_rows for part in kept) >= rows or scanned >= ROWS_SCANNED:
            break
    return [part for part in kept if part.num_rows], scanned


def contains(batch: pa.RecordBatch, key: str) -> pa.Array:
    """Which rows have a column whose text contains the key."""
    mask = pc.equal(pa.nulls(batch.num_rows, pa.int8()).fill_null(0), 1)
    for column in batch.columns:
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            continue
        words = column.cast(pa.string())
        mask = pc.or_(mask, pc.fill_null(pc.match_substring(words, key), False))
    return mask


def rendered(batches: list[pa.RecordBatch], scanned: int) -> str:
    """The first rows as an HTML table."""
    if not batches:
        return f"<div class=none>none of {scanned:,} rows of state matches</div>"
    table = pa.Table.from_batches(batches).slice(0, ROWS_SHOWN)
    titles = "".join(f"<th class=l>{escape(name)}" for name in table.column_names)
    lines = "".join(
        "<tr>" + "".join(f"<td class=l>{escape(str(value))}" for value in row.values()) + "</tr>"
        for row in table.to_pylist()
    )
    note = f"{table.num_rows:,} rows shown, {scanned:,} looked at"
    return f"<table><tr>{titles}</tr>{lines}</table><div class=none>{note}</div>"
