"""An operator's state by key, for its page: rows of the last published version, read from storage.

A key is looked up. If there is none of that text, batches are read until enough keys contain it, so that a
look at large state takes neither memory nor long.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from html import escape
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace import inspect
from headrace.errors import HeadraceError
from headrace.plan.types import arrow_type, is_packed

ROWS_SHOWN = 50
ROWS_SCANNED = 2_000_000


@dataclass(frozen=True)
class Rows:
    """The state of an operator, as its last published version has it."""

    keys: Sequence[str]  # names of key columns; empty: any column may match
    exact: Sequence[pa.RecordBatch]  # the rows of the key itself, looked up
    all: Iterable[pa.RecordBatch]


def browse(checkpoint: str, operator: str, key: str, rows: int) -> str:
    """Rows of a key, or of keys that contain a text, as an HTML table; or why there are none."""
    try:
        with closing(opened(checkpoint, operator, key)) as rows_of:
            state = next(rows_of)
            if state.exact:
                return rendered(state.exact, sum(batch.num_rows for batch in state.exact))
            return rendered(*find(state.all, key, rows, state.keys))
    except HeadraceError as error:
        return f"<div class=none>{escape(str(error))}</div>"


def opened(checkpoint: str, operator: str, key: str) -> Generator[Rows]:
    """One `Rows`, which can be read until the generator is closed."""
    with inspect.open(checkpoint) as state:
        fields = state.record(operator).spec.keys
        names = [field.label or field.name for field in fields]
        exact: list[pa.RecordBatch] = []
        value = _value(key, fields[0].type) if key and len(fields) == 1 else None
        if value is not None:
            exact = [
                batch for batch in state.table(operator, keys={names[0]: value}).to_batches() if len(batch)
            ]
        yield Rows(names, exact, state.table(operator).to_batches())


def _value(key: str, kind: str) -> Any:
    """A text as a value of a key's type; None if it is none."""
    if is_packed(kind):
        return None
    try:
        return pa.scalar(key).cast(arrow_type(kind)).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def find(
    batches: Iterable[pa.RecordBatch], key: str, rows: int, names: Sequence[str] = ()
) -> tuple[list[pa.RecordBatch], int]:
    """The first rows that match, and how many rows were looked at."""
    kept: list[pa.RecordBatch] = []
    scanned = 0
    for batch in batches:
        scanned += batch.num_rows
        kept.append(batch if not key else batch.filter(contains(batch, key, names)))
        if sum(part.num_rows for part in kept) >= rows or scanned >= ROWS_SCANNED:
            break
    return [part for part in kept if part.num_rows], scanned


def contains(batch: pa.RecordBatch, key: str, names: Sequence[str] = ()) -> pa.Array:
    """Which rows have a key column whose text contains the key; without names any column counts."""
    mask = pc.equal(pa.nulls(batch.num_rows, pa.int8()).fill_null(0), 1)
    among = set(names) & set(batch.schema.names) or set(batch.schema.names)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name not in among or pa.types.is_binary(column.type):
            continue
        is_nested = pa.types.is_nested(column.type)
        words = pa.array(map(str, column.to_pylist())) if is_nested else column.cast(pa.string())
        mask = pc.or_(mask, pc.fill_null(pc.match_substring(words, key), False))
    return mask


def rendered(batches: Sequence[pa.RecordBatch], scanned: int) -> str:
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
