"""Random operators and batches, and a plain dict that says what a table of them must hold."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headrace.kernels import reference
from headrace.plan.spec import (
    HASH,
    TIME,
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    Window,
)
from headrace.plan.types import arrow_type, is_decimal
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.rows.arrow import probe_of, results_of
from headrace.store.tables.table import Table

I64 = (1 << 63) - 1
INTEGERS = {
    "int8": 127,
    "int16": 2**15 - 1,
    "int32": 2**31 - 1,
    "int64": I64,
    "date": 2**31 - 1,
    "timestamp": I64,
    "timestamp_ntz": I64,
    "duration": I64,
}
TYPES = (*INTEGERS, "bool", "float", "double", "string", "binary", "decimal(38,2)", "decimal(5,-1)")
# The state types whose Arrow values Python would not give back as int.
STORED_AS = {
    **dict.fromkeys(("timestamp", "timestamp_ntz", "duration"), pa.int64()),
    "date": pa.int32(),
}


def values(kind: str) -> st.SearchStrategy[Any]:
    """Values of a type from a small pool with its extremes, so that they repeat."""
    if kind == "bool":
        return st.booleans()
    if kind in INTEGERS:
        top = INTEGERS[kind]
        return st.sampled_from([0, 1, 2, 3, -1, -2, top, -top - 1, top - 1])
    if kind in ("float", "double"):
        return st.sampled_from([0.0, -0.0, 1.5, -2.25, 2.0**100, float("inf"), float("-inf"), float("nan")])
    if kind == "string":
        return st.sampled_from(["", "a", "ab", "b", "é", "\U0001f600", "a\0", "x" * 40])
    if kind == "binary":
        return st.sampled_from([b"", b"\0", b"\0\0", b"\xff", b"\x7f", b"\x80" * 9])
    digits = 10 ** int(kind[8 : kind.index(",")]) - 1
    scale = int(kind[kind.index(",") + 1 : -1])
    pool = st.sampled_from([0, 1, -1, digits, -digits, digits // 2, 7])
    return pool.map(lambda unscaled: reference.scaled(unscaled, scale))


def key_values(kind: str) -> st.SearchStrategy[Any]:
    """As the JVM normalises keys: one zero, one NaN."""
    strategy = values(kind)
    return strategy.map(lambda value: value + 0.0) if kind in ("float", "double") else strategy


@st.composite
def accumulators(draw: st.DrawFn, index: int) -> tuple[Accumulator, Field | None]:
    kind = draw(st.sampled_from(["count", "count all", "sum", "min", "max", "moments", "first", "last"]))
    name = f"i{index}"
    if kind == "count all":
        return Accumulator("count", None, "int64"), None
    if kind == "count":
        return Accumulator("count", name, "int64"), Field(name, draw(st.sampled_from(TYPES)))
    if kind == "moments":
        return Accumulator("moments", name, "double"), Field(name, "double")
    if kind == "sum":
        of = draw(st.sampled_from(["int64", "double", "decimal(38,2)", "decimal(5,-1)"]))
        overflow = draw(st.sampled_from(["null"] if is_decimal(of) else ["null", "wrap"]))
        return Accumulator("sum", name, of, overflow), Field(name, of)
    of = draw(st.sampled_from(TYPES))
    return Accumulator(kind, name, of), Field(name, of)


@st.composite
def specs(draw: st.DrawFn) -> OperatorSpec:
    keys = [
        Field(f"k{i}", kind) for i, kind in enumerate(draw(st.lists(st.sampled_from(TYPES), max_size=3)))
    ]
    drawn = [draw(accumulators(i)) for i in range(draw(st.integers(1, 4)))]
    inputs = tuple(field for _, field in drawn if field is not None)
    kept = tuple(accumulator for accumulator, _ in drawn)
    window = draw(st.sampled_from([None, Window(1_000_000)]))
    return OperatorSpec("op", tuple(keys), inputs, Fold(kept), window, "changes", True, (), 1)


def rows_of(spec: OperatorSpec) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows as dicts by column."""
    columns: dict[str, st.SearchStrategy[Any]] = {TIME: st.none() | st.integers(0, 3)}
    columns |= {field.name: st.none() | key_values(field.type) for field in spec.keys}
    columns |= {field.name: st.none() | values(field.type) for field in spec.inputs}
    return st.lists(st.fixed_dictionaries(columns), max_size=12)


def array(kind: str, items: list[Any]) -> pa.Array:
    if kind in STORED_AS:
        return pa.array(items, STORED_AS[kind]).view(arrow_type(kind))
    return pa.array(items, arrow_type(kind))


def plain(kind: str, column: pa.Array) -> list[Any]:
    return column.view(STORED_AS[kind]).to_pylist() if kind in STORED_AS else column.to_pylist()


def comparable(value: Any) -> Any:
    """Floats by their bits, all NaN alike, so that results compare exactly."""
    if isinstance(value, float):
        return ("float", "nan" if value != value else struct.pack("<d", value))
    return value.normalize() if isinstance(value, Decimal) and not value else value


def key_of(spec: OperatorSpec, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(comparable(row[field.name]) for field in spec.keys)


def batch_of(spec: OperatorSpec, rows: list[dict[str, Any]], hashes: int) -> pa.RecordBatch:
    """The rows as an input batch, cut out of a longer one; only `hashes` different hashes exist."""
    padding = [dict.fromkeys(rows[0])] * 3 if rows else []
    fields = [Field(TIME, "timestamp"), *spec.keys, *spec.inputs]
    columns = {f.name: array(f.type, [row[f.name] for row in padding + rows]) for f in fields}
    numbers = [(hash_of(key_of(spec, row)) % hashes) - hashes // 2 for row in padding + rows]
    batch = pa.record_batch({HASH: pa.array(numbers, pa.int64()), **columns})
    return batch.slice(len(padding))


def hash_of(key: tuple[Any, ...]) -> int:
    return sum((i + 1) * byte for i, byte in enumerate(repr(key).encode()))


class Model:
    """A table, the runs that were committed from it, and the rows that it has seen, by key."""

    def __init__(self, spec: OperatorSpec, hashes: int) -> None:
        self.spec, self.hashes = spec, hashes
        self.layout = RowLayout(spec)
        self.table = Table(self.layout)
        self.seen: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        self.touched: set[tuple[Any, ...]] = set()
        self.stored: dict[Any, tuple[np.ndarray, np.ndarray]] = {}

    def add(self, rows: list[dict[str, Any]]) -> None:
        batch = batch_of(self.spec, rows, self.hashes)
        growth, before = self.table.growth_bytes(len(rows), batch.nbytes), self.table.nbytes
        ids, fresh = self.table.upsert(probe_of(self.layout, batch))
        assert sorted(set(ids[np.isin(ids, fresh)])) == sorted(fresh)
        self._load(fresh)
        self.table.accumulate(ids, batch)
        if not self.stored:
            assert self.table.nbytes <= before + growth
        for row in rows:
            self.seen.setdefault(key_of(self.spec, row), []).append(row)
            self.touched.add(key_of(self.spec, row))

    def _load(self, fresh: np.ndarray) -> None:
        """What the segments do for the table: the newest stored row of a key."""
        keys = self.table.keys_of(fresh)
        for i, row_id in enumerate(fresh):
            entry = self.stored.get(self._stored_key(keys, i))
            if entry is not None:
                self.table.fill(np.array([row_id]), entry[0], entry[1])

    def _stored_key(self, run: Run, i: int) -> Any:
        variable = self.layout.variable_key_words
        words = run.words[i, : self.layout.key_width]
        parts = [
            reference.value_at(w, run.heap) if at in variable else int(w) for at, w in enumerate(words)
        ]
        return tuple(parts)

    def commit(self) -> None:
        run = self.table.dirty_run()
        assert self.table.dirty_count == len(run) == len(self.touched)
        assert (np.diff(run.order.astype(object)) >= 0).all()
        assert self.results(run) == self.expected(self.touched)
        for i in range(len(run)):
            self.stored[self._stored_key(run, i)] = (run.words[i : i + 1].copy(), run.heap)
        self.table.settle()
        self.touched.clear()
        assert self.table.dirty_count == len(self.table.dirty_run()) == 0

    def results(self, run: Run) -> dict[tuple[Any, ...], list[Any]]:
        groups: dict[tuple[Any, ...], list[Any]] = {}
        kinds = {field.name: field.type for field in self.spec.keys}
        for index, accumulator in enumerate(self.spec.work.accumulators):
            kinds[f"a{index}"] = accumulator.type
        for batch in results_of(self.layout, run, 5, 3):
            batch.validate(full=True)
            names = [name for name in batch.schema.names if not name.startswith("__")]
            columns = [plain(kinds.get(name, "double"), batch.column(name)) for name in names]
            for row in zip(*columns, strict=True):
                key = tuple(map(comparable, row[: len(self.spec.keys)]))
                assert key not in groups
                groups[key] = [approximate(value) for value in row[len(self.spec.keys) :]]
        return groups

    def expected(self, keys: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[Any]]:
        answer = {}
        for key in keys:
            columns: list[Any] = []
            for accumulator in self.spec.work.accumulators:
                rows = [
                    (row[TIME], row[accumulator.input] if accumulator.input else 1)
                    for row in self.seen[key]
                ]
                result = reference.fold(accumulator, rows)
                columns += result if accumulator.kind == "moments" else [result]
            answer[key] = [approximate(value) for value in columns]
        return answer

    def resident(self) -> set[tuple[Any, ...]]:
        return set(self.results(self.table.whole_run()))


def approximate(value: Any) -> Any:
    """Floats to nine digits: moments are exact in the model and rounded in the table."""
    if isinstance(value, float):
        return "nan" if value != value else 0.0 if abs(value) < 1e-12 else float(f"{value:.9g}")
    return comparable(value)
