"""Protects the size of state: with a watermark or a time to live, rows at a steady rate leave as much state
after 50 windows as after 5. Joins without a window: `tests/contract/test_store_pairs.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.plan.spec import (
    HASH,
    SIDE,
    TIME,
    Accumulator,
    Emit,
    Field,
    Fold,
    Grouped,
    Holistic,
    HolisticResult,
    OperatorSpec,
    StoreName,
    Window,
    WindowJoin,
    Work,
    input_schema,
)
from headrace.plan.work.changes.distinct import Distinct
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.dedup import Dedup
from headrace.testing.contracts.store_lab import StoreLab

SECOND = 1_000_000
WIDTH, DELAY, STEP = 10 * SECOND, 4 * SECOND, 2 * SECOND
EARLY, LATE = 5, 50  # windows
KEYS = 24

VALUE = Field("v0", "int64", "v")
COUNT, TOTAL = Accumulator("count", None, "int64"), Accumulator("sum", "v0", "int64")
LIST = HolisticResult("list", "v0", "int64")
FIXED, SLIDING = Window(WIDTH), Window(WIDTH, slide_us=STEP)
SESSION = Window(4 * SECOND, session=True)

CASES: dict[str, tuple[Work, Window | None, Emit, StoreName]] = {
    "tumbling": (Fold((COUNT, TOTAL)), FIXED, "final", "rmw"),
    "tumbling, changes": (Fold((COUNT, TOTAL)), FIXED, "changes", "rmw"),
    "tumbling, late": (Fold((COUNT, TOTAL)), replace(FIXED, lateness_us=WIDTH), "final", "rmw"),
    "sliding": (Fold((COUNT, TOTAL)), SLIDING, "final", "rmw"),
    "session": (Fold((COUNT, TOTAL)), SESSION, "final", "rmw"),
    "changelog": (Retracting((TOTAL, COUNT), 1), FIXED, "changelog", "rmw"),
    "distinct": (Distinct(Fold((Accumulator("count", "v0", "int64"),)), ("v0",)), FIXED, "changes", "rmw"),
    "all rows": (Holistic((LIST,), ()), FIXED, "final", "aar"),
    "all rows by time": (Holistic((LIST,), ()), SLIDING, "final", "range"),
    "all rows of sessions": (Holistic((LIST,), ()), SESSION, "final", "aur"),
    "a function": (Grouped(), FIXED, "final", "aar"),
    "join": (WindowJoin("full", (VALUE,), (VALUE,)), FIXED, "final", "aar"),
    "join of sessions": (WindowJoin("full", (VALUE,), (VALUE,)), SESSION, "final", "aur"),
    "dedup, first": (Dedup("first", WIDTH), FIXED, "changes", "rmw"),
    "dedup, last": (Dedup("last", WIDTH), FIXED, "changes", "rmw"),
}


def spec_of(name: str) -> OperatorSpec:
    work, window, emit, store = CASES[name]
    return OperatorSpec(
        name="bounded",
        keys=(Field("k0", "int64", "k"),),
        inputs=(VALUE,),
        work=work,
        window=window,
        emit=emit,
        timed=True,
        delays_ms=(DELAY // 1000,),
        partitions=1,
        store=store,
    )


def batch_of(spec: OperatorSpec, step: int) -> pa.RecordBatch:
    """New keys in every window; keys of a session pause between two windows."""
    window, schema = step * STEP // WIDTH, input_schema(spec)
    keys = [window * 7 + at % KEYS for at in range(2 * KEYS)]
    values: dict[str, Any] = {
        HASH: [(key * 0x9E3779B97F4A7C15 % (1 << 64)) - (1 << 63) for key in keys],
        TIME: [step * STEP + at * 1000 for at in range(len(keys))],
        SIDE: [at % 2 for at in range(len(keys))],
        "k0": keys,
        "v0": [step * 100 + at for at in range(len(keys))],
    }
    return pa.RecordBatch.from_arrays([pa.array(values[f.name], f.type) for f in schema], schema=schema)


@pytest.mark.parametrize("name", CASES)
def test_state_is_as_large_after_fifty_windows(tmp_path: Path, name: str) -> None:
    spec = spec_of(name)
    lab, sizes = StoreLab(spec, tmp_path), {}
    for step in range(LATE * WIDTH // STEP):
        watermark = step * STEP - DELAY
        lab.begin()
        lab.store.apply(batch_of(spec, step))
        write = lab.store.gather(watermark)
        for _ in lab.store.results(watermark):
            pass
        lab.settle(write(), watermark)
        while lab.compact():
            pass
        assert lab.manifest is not None
        sizes[step] = (lab.manifest.keys, lab.manifest.state_bytes)
    early = largest(sizes, EARLY)
    late = largest(sizes, LATE)
    assert all(size > 0 for size in early)
    assert all(now <= 1.2 * before for before, now in zip(early, late, strict=True)), (early, late)


def largest(sizes: dict[int, tuple[int, int]], window: int) -> tuple[int, int]:
    """The largest state, in rows and in bytes, within the two windows before one ends."""
    steps = range((window - 2) * WIDTH // STEP, window * WIDTH // STEP)
    return max(sizes[step][0] for step in steps), max(sizes[step][1] for step in steps)
