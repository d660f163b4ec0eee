"""Protects rows that are combined before the shuffle: a store that gets them has the state, the results and
the late rows that it has from the rows themselves, whatever they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ArithmeticOverflow
from headrace.plan.options import Combine
from headrace.plan.spec import (
    HASH,
    KEYLESS_HASH,
    Accumulator,
    Field,
    Fold,
    Holistic,
    HolisticResult,
    OperatorSpec,
    Window,
    input_schema,
    rows_in,
)
from headrace.spark.build.combine import Combiner, combines
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import rows_of

SECOND = 1_000_000
INT64 = (-(1 << 63), (1 << 63) - 1)
INPUTS = (Field("v0", "int64", "amount"), Field("v1", "double", "price"), Field("v2", "timestamp", "seen"))
ALL = (
    Accumulator("count", None, "int64"),
    Accumulator("count", "v1", "int64"),
    Accumulator("sum", "v0", "int64"),
    Accumulator("sum", "v1", "double"),
    Accumulator("min", "v0", "int64"),
    Accumulator("max", "v2", "timestamp"),
)
PLAIN = OperatorSpec("all", (), INPUTS, Fold(ALL), Window(10 * SECOND), "final", True, (0,), 1)
KEYED = replace(PLAIN, keys=(Field("k0", "string", "key"), Field("k1", "double", "at")))
SLIDING = replace(KEYED, window=Window(10 * SECOND, slide_us=4 * SECOND))
RUNNING = replace(KEYED, window=None, emit="changes", timed=False)


def batch_of(spec: OperatorSpec, rng: np.random.Generator, n: int, since_s: int) -> pa.RecordBatch:
    """Rows with nulls, of a few keys, doubles that add up exactly in any order."""
    made = {
        "k0": pa.array([None if k == 0 else f"key {k}" for k in rng.integers(0, 6, n)], pa.string()),
        "k1": pa.array(rng.choice([0.0, np.nan, 1.5], n)),
        "v0": pa.array(rng.integers(-50, 50, n), pa.int64(), mask=rng.random(n) < 0.3),
        "v1": pa.array(rng.integers(-50, 50, n) / 4, pa.float64(), mask=rng.random(n) < 0.3),
        "v2": pa.array(rng.integers(0, 99, n), pa.int64(), mask=rng.random(n) < 0.3),
        "__hash": pa.array(np.zeros(n, np.int64)),
        "__time": pa.array(since_s * SECOND + rng.integers(0, 30 * SECOND, n)),
    }
    schema = input_schema(spec)
    return pa.RecordBatch.from_arrays(
        [made[field.name].cast(field.type) for field in schema], schema=schema
    )


def epoch(lab: StoreLab, batches: list[pa.RecordBatch], until: int | None) -> list[tuple[Any, ...]]:
    """One whole epoch over these batches; what it emitted."""
    lab.begin()
    for batch in batches:
        lab.store.apply(batch)
    write = lab.store.gather(until)
    emitted = rows_of(lab.store.results(until))
    lab.settle(write(), until)
    return emitted


def combined(spec: OperatorSpec, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from Combiner(replace(spec, work=spec.work.combining())).run(iter(batches))


@pytest.mark.parametrize(
    "spec", [PLAIN, KEYED, SLIDING, RUNNING], ids=["plain", "keyed", "sliding", "running"]
)
def test_a_store_cannot_tell_combined_rows_from_the_rows(spec: OperatorSpec, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    rows, fewer = (
        StoreLab(spec, tmp_path / "a"),
        StoreLab(replace(spec, work=spec.work.combining()), tmp_path / "b"),
    )
    for number in range(5):
        until = None if spec.window is None else (number * 16 - 5) * SECOND
        batches = [batch_of(spec, rng, int(n), number * 8) for n in (0, 1, 700, 300)]
        sent = list(combined(spec, batches))
        assert sum(map(rows_in, sent)) == 1_001
        assert sum(batch.num_rows for batch in sent) < 700
        assert repr(epoch(fewer, sent, until)) == repr(epoch(rows, batches, until))  # NaN is a key
        assert fewer.store.late_rows == rows.store.late_rows
    assert spec.window is None or rows.store.late_rows > 0


def test_rows_without_keys_need_not_bring_their_hash() -> None:
    batch = batch_of(PLAIN, np.random.default_rng(5), 500, 0)
    hashed = batch.set_column(0, HASH, pa.array(np.full(500, KEYLESS_HASH)))
    assert list(combined(PLAIN, [batch.drop_columns([HASH])])) == list(combined(PLAIN, [hashed]))


def test_rows_of_many_keys_go_on_as_they_are() -> None:
    n = 2_000
    keys = pa.array([f"key {number}" for number in range(n)])
    batch = batch_of(KEYED, np.random.default_rng(1), n, 0).set_column(2, "k0", keys)
    assert sum(part.num_rows for part in combined(KEYED, [batch] * 3)) == 3 * n


def test_no_more_is_held_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.build.combine.WAITING_MAX", 100)
    rng = np.random.default_rng(2)
    batches = [batch_of(KEYED, rng, 300, 31 * number) for number in range(20)]
    sizes = [part.num_rows for part in combined(KEYED, batches)]
    assert len(sizes) > 5
    assert max(sizes) < 300
    assert sum(map(rows_in, combined(KEYED, batches))) == 6_000


@pytest.mark.parametrize("overflow", ["error", "wrap"])
def test_a_sum_that_leaves_its_type_does_so_in_the_store(overflow: str, tmp_path: Path) -> None:
    total = Accumulator("sum", "v0", "int64", overflow)  # type: ignore[arg-type]
    spec = replace(PLAIN, work=Fold((total,)))
    rng = np.random.default_rng(3)
    values = pa.array([INT64[1], 1, INT64[0], 5], pa.int64())
    at = pa.array([SECOND] * 4).cast(pa.timestamp("us", "UTC"))
    batch = batch_of(spec, rng, 4, 0).set_column(1, "__time", at).set_column(2, "v0", values)
    sent = list(combined(spec, [batch]))
    assert sum(part.num_rows for part in sent) == 4
    lab = StoreLab(replace(spec, work=spec.work.combining()), tmp_path)
    if overflow == "error":
        with pytest.raises(ArithmeticOverflow):
            epoch(lab, sent, 99 * SECOND)
    else:
        assert sum(row[-1] for row in epoch(lab, sent, 99 * SECOND)) == 5


MEDIAN = HolisticResult("percentile", "v0", "double", (0.5,))


@pytest.mark.parametrize(
    ("spec", "setting", "expected"),
    [
        (PLAIN, "auto", True),
        (PLAIN, "off", False),
        (KEYED, "auto", False),
        (KEYED, "on", True),
        (replace(PLAIN, window=Window(SECOND, session=True)), "on", False),
        (replace(PLAIN, work=Holistic((MEDIAN,))), "on", False),
        (replace(PLAIN, work=Fold((*ALL, Accumulator("moments", "v1", "double")))), "on", False),
        (replace(PLAIN, work=Fold((Accumulator("max", "v1", "double"),))), "auto", False),
        (replace(PLAIN, work=Fold((Accumulator("first", "v0", "int64"),))), "on", False),
    ],
)
def test_what_is_combined(spec: OperatorSpec, setting: Combine, expected: bool) -> None:
    assert combines(spec, setting) is expected
