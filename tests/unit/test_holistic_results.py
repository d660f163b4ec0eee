"""Protects holistic results of whole groups, for every type of value: against plain Python over each group.

Groups are told apart by key and window start, whatever their hashes; nulls never count."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.grouped import GroupedRows
from headrace.operators.holistic import HolisticComputation
from headrace.plan.spec import (
    GROUP,
    WINDOW_START,
    Accumulator,
    Field,
    Fold,
    Grouped,
    Holistic,
    HolisticResult,
    OperatorSpec,
    Window,
    input_schema,
)
from headrace.store.rows.groups import groups_of
from headrace.store.rows.kept_layout import KeptLayout, run_of, times_in

N, KEYS, WIDTH = 400, 6, 50
VALUES: dict[str, list[Any]] = {
    "double": [0.0, -2.5, 1e300, math.inf, -math.inf, math.nan, 3.25],
    "float": [0.5, -2.0, math.inf, 7.0],
    "int32": [-(2**31), -1, 0, 5, 2**31 - 1],
    "int64": [-(2**63), 0, 9, 2**63 - 1],
    "bool": [True, False],
    "string": ["", "a", "ab", "é", "z" * 40],
    "binary": [b"", b"\x00", b"\xff", b"a"],
    "decimal(30,2)": [Decimal("-1e20"), Decimal("0.01"), Decimal("7.00"), Decimal("1e20")],
    "date": [dt.date(1960, 1, 1), dt.date(2024, 2, 29)],
    "timestamp": [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, tzinfo=dt.UTC)],
    "duration": [dt.timedelta(-3), dt.timedelta(0), dt.timedelta(microseconds=5)],
}
BASE = OperatorSpec(
    name="all",
    keys=(Field("k0", "string", "key"),),
    inputs=(),
    work=Fold(),
    window=Window(WIDTH),
    emit="final",
    timed=True,
    delays_ms=(0,),
    partitions=1,
)


def spec_of(kind: str, *results: HolisticResult) -> OperatorSpec:
    inputs = (Field("v0", kind, "v"), Field("v1", "int32", "by"))
    sums = (Accumulator("count", "v0", "int64"), Accumulator("max", "v0", kind))
    return replace(BASE, inputs=inputs, work=Holistic(results, sums))


def batch_of(spec: OperatorSpec, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    key = rng.integers(0, KEYS, N)
    values = VALUES[spec.inputs[0].type]
    picked = [values[i] if i < len(values) else None for i in rng.integers(0, len(values) + 1, N)]
    schema = input_schema(spec)
    columns = [
        pa.array((key // 2) << 40, pa.int64()),
        pa.array(rng.integers(0, 200, N), pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([None if k == 1 else f"k{k}" for k in key], pa.string()),
        pa.array(picked, schema.field("v0").type),
        pa.array(rng.integers(0, 9, N), pa.int32(), mask=rng.random(N) < 0.2),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def computed(spec: OperatorSpec, batch: pa.RecordBatch) -> dict[Any, dict[str, Any]]:
    """Results by key and window start, with windows of 50 us told apart row by row."""
    layout = KeptLayout(spec)
    run = run_of(layout, batch)
    starts = times_in(layout, run) // WIDTH * WIDTH
    rows = [
        row
        for part in HolisticComputation(layout)(*groups_of(layout, run, starts, starts + WIDTH))
        for row in part.to_pylist()
    ]
    results = {(row["k0"], row[WINDOW_START]): row for row in rows}
    assert len(results) == len(rows)
    return results


def grouped(batch: pa.RecordBatch) -> dict[Any, list[dict[str, Any]]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    starts = [t // WIDTH * WIDTH for t in batch.column("__time").cast(pa.int64()).to_pylist()]
    bounds = pa.array(starts, pa.int64()).cast(pa.timestamp("us", "UTC")).to_pylist()
    for start, row in zip(bounds, batch.to_pylist(), strict=True):
        groups.setdefault((row["k0"], start), []).append(row)
    return groups


def rank(value: Any) -> Any:
    """Spark's order: NaN above all numbers."""
    if not isinstance(value, float):
        return value
    return (True, 0.0) if math.isnan(value) else (False, value)


def ordered(rows: list[dict[str, Any]]) -> list[Any]:
    return sorted((row["v0"] for row in rows if row["v0"] is not None), key=rank)


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_of_value(kind: str) -> None:
    spec = spec_of(
        kind,
        HolisticResult("mode", "v0", kind),
        HolisticResult("top", "v0", kind, (3.0,)),
        HolisticResult("list", "v0", kind),
        HolisticResult("set", "v0", kind),
        HolisticResult("approx_percentile", "v0", kind, (0.0, 0.4, 1.0, 100.0), many=True),
        HolisticResult("top", "v0", kind, (2.0,), by="v1"),
        HolisticResult("top", "v0", kind, (2.0,), by="v1", ties=True),
        HolisticResult("top", "v0", kind, (2.0,), ties=True),
    )
    batch = batch_of(spec)
    got, groups = computed(spec, batch), grouped(batch)
    assert got.keys() == groups.keys()
    for group, rows in groups.items():
        values, row = ordered(rows), got[group]
        counts = Counter(map(repr, values))
        most = max(counts.values(), default=0)
        modes = [value for value in values if counts[repr(value)] == most]
        by_time = sorted(
            ((r["__time"], rank(r["v0"]), r["v0"]) for r in rows if r["v0"] is not None),
            key=lambda entry: entry[:2],
        )
        assert row["a0"] == len(values)
        assert repr(row["a1"]) == repr(values[-1] if values else None)
        assert repr(row["h0"]) == repr(modes[0] if modes else None)
        assert repr(row["h1"]) == repr(values[::-1][:3])
        assert repr(row["h2"]) == repr([value for *_, value in by_time])
        assert repr(row["h3"]) == repr(list({repr(value): value for value in values}.values()))
        at = [max(1, math.ceil(share * len(values))) - 1 for share in (0.0, 0.4, 1.0)]
        assert repr(row["h4"]) == repr([values[place] for place in at] if values else None)
        best = by_another(rows)
        assert repr(row["h5"]) == repr([r["v0"] for r in best[:2]])
        assert repr(row["h6"]) == repr([r["v0"] for r in best if r["v1"] >= best[:2][-1]["v1"]])
        equals = [value for value in values[::-1] if rank(value) >= rank(values[::-1][:2][-1])]
        assert repr(row["h7"]) == repr(equals)


def by_another(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that have the other column, the largest first, then the latest, then the largest value."""

    def place(row: dict[str, Any]) -> Any:
        has = row["v0"] is not None
        return (row["v1"], row["__time"], has, rank(row["v0"])) if has else (row["v1"], row["__time"], has)

    return sorted((row for row in rows if row["v1"] is not None), key=place, reverse=True)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.73, 1.0])
def test_percentiles_lie_between_ranks_as_numpy_puts_them(share: float) -> None:
    spec = spec_of("double", HolisticResult("percentile", "v0", "double", (share,)))
    batch = batch_of(spec)
    tame = batch.column("v0").to_pylist()
    tame = [None if v is None or not math.isfinite(v) else v for v in tame]
    batch = batch.set_column(3, batch.schema.field(3), pa.array(tame, pa.float64()))
    for group, rows in grouped(batch).items():
        values, percentile = ordered(rows), computed(spec, batch)[group]["h0"]
        assert (
            percentile == pytest.approx(np.percentile(values, share * 100))
            if values
            else percentile is None
        )


def test_negative_zero_is_zero_in_sets_and_modes() -> None:
    spec = spec_of("double", HolisticResult("set", "v0", "double"), HolisticResult("mode", "v0", "double"))
    batch = batch_of(spec).slice(0, 4)
    zeros = pa.array([-0.0, 0.0, -0.0, 1.0])
    same = [
        pa.array([7] * 4),
        pa.array([1] * 4).cast(pa.timestamp("us", "UTC")),
        pa.array(["k"] * 4),
        zeros,
    ]
    batch = pa.RecordBatch.from_arrays([*same, batch.column(4)], schema=batch.schema)
    (row,) = computed(spec, batch).values()
    assert repr(row["h0"]) == "[0.0, 1.0]"
    assert repr(row["h1"]) == "0.0"


def test_only_groups_with_fresh_rows_are_left() -> None:
    spec = spec_of("int64", HolisticResult("list", "v0", "int64"))
    layout, batch = KeptLayout(spec), batch_of(spec)
    run = run_of(layout, batch)
    fresh = np.zeros(len(run), np.bool_)
    fresh[[3, 200]] = True
    rows, groups = groups_of(layout, run, 0, 1000, fresh)
    keys = {row["k0"] for part in HolisticComputation(layout)(rows, groups) for row in part.to_pylist()}
    assert 1 <= len(keys) <= 2
    assert len(rows) == sum(row["k0"] in keys for row in batch.to_pylist())


def test_rows_of_groups_come_together_in_the_order_of_time() -> None:
    spec = replace(spec_of("string"), work=Grouped())
    layout, batch = KeptLayout(spec), batch_of(spec)
    run, compute = run_of(layout, batch), GroupedRows(layout)
    parts = [*compute(*groups_of(layout, run, 0, 1000)), *compute(*groups_of(layout, run, 1000, 2000))]
    rows = [row for part in parts for row in part.to_pylist()]
    assert len(rows) == 2 * N
    numbers = [row[GROUP] for row in rows]
    assert numbers == sorted(numbers)
    by_number: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_number.setdefault(row[GROUP], []).append(row)
    assert len(by_number) == 2 * KEYS
    for members in by_number.values():
        assert len({(row["k0"], row[WINDOW_START]) for row in members}) == 1
        assert [row["__time"] for row in members] == sorted(row["__time"] for row in members)
