"""Gadget's operators as workloads of a store: event batches, and the operator for them.

Times are drawn from a Poisson process of `RATE` events per second. One event in a hundred is up to a second
late, and the watermark follows a second behind. Keys of the aggregates are Zipf distributed (s = 1) over a
million keys, as in Gadget's samples. Keys of joins are uniform, because a skewed join would measure its
result only. Keys and values are 64-bit integers. The seed fixes everything.

An interval join (times at most `BOUND_US` apart) is a join over sliding windows of twice the bound, one
every bound. Of the windows that a pair shares, one has the later row in its second half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.plan.spec import (
    HASH,
    SIDE,
    TIME,
    WINDOW_START,
    Accumulator,
    Field,
    Fold,
    Grouped,
    OperatorSpec,
    StoreName,
    Window,
    WindowJoin,
    Work,
    input_schema,
)
from headrace.row.arrays import I64

RATE = 10_000
SECOND = 1_000_000
DELAY_US = SECOND
WIDTH_US, SLIDE_US, GAP_US, BOUND_US = 5 * SECOND, SECOND, 2 * SECOND, SECOND
ZIPF_KEYS, JOIN_KEYS = 1_000_000, 20_000

NAMES = (
    "tumbling_incremental",
    "tumbling_holistic",
    "sliding_incremental",
    "sliding_holistic",
    "session_incremental",
    "session_holistic",
    "tumbling_join",
    "sliding_join",
    "interval_join",
    "continuous_aggregation",
    "continuous_join",
)


@dataclass(frozen=True)
class Batch:
    """Events in order of arrival, and the watermark after them."""

    keys: I64
    times_us: I64
    values: I64
    sides: I64
    watermark_us: int


def window_of(name: str) -> Window | None:
    """The window of a workload; jobs and tasks of a continuous join meet while the job is active."""
    if name.startswith("tumbling"):
        return Window(WIDTH_US)
    if name.startswith("sliding"):
        return Window(WIDTH_US, slide_us=SLIDE_US)
    if name == "interval_join":
        return Window(2 * BOUND_US, slide_us=BOUND_US)
    return None if name == "continuous_aggregation" else Window(GAP_US, session=True)


def spec_of(name: str) -> OperatorSpec:
    """The operator in Headrace that corresponds to Gadget's."""
    window, value = window_of(name), Field("v0", "int64", "value")
    work: Work = Fold((Accumulator("sum", "v0", "int64", "wrap"),))
    if name.endswith("join"):
        side = (value, Field(TIME, "timestamp", "time"))
        work = WindowJoin("inner", side, side)
    elif name.endswith("holistic"):
        work = Grouped()
    return OperatorSpec(
        name=name,
        keys=(Field("k0", "int64", "key"),),
        inputs=(value,),
        work=work,
        window=window,
        emit="changes" if window is None else "final",
        timed=window is not None,
        delays_ms=() if window is None else (DELAY_US // 1000,),
        partitions=1,
        store=_store(name, window, not work.keeps_rows),
    )


def _store(name: str, window: Window | None, folds: bool) -> StoreName:
    if folds:
        return "rmw"
    if name == "interval_join":
        return "range"
    return "aur" if window is not None and window.session else "aar"


def counted_results(name: str, results: pa.RecordBatch) -> pa.RecordBatch:
    """The results that count: for an interval join the pairs within the bound, each once."""
    if name != "interval_join":
        return results
    left, right, start = (
        results.column(column).cast(pa.int64()).to_numpy() for column in ("l1", "r1", WINDOW_START)
    )
    near = np.abs(left - right) <= BOUND_US
    return results.filter(pa.array(near & (np.maximum(left, right) >= start + BOUND_US)))


def batches(name: str, count: int, events: int, seed: int = 7) -> Iterator[Batch]:
    """`count` batches of `events` events each."""
    random = np.random.default_rng(seed)
    joins = name.endswith("join")
    ladder = None if joins else np.cumsum(1.0 / np.arange(1, ZIPF_KEYS + 1))
    now_us, frontier_us = 0, 0
    for _ in range(count):
        gaps = random.exponential(SECOND / RATE, events)
        due_us = now_us + np.cumsum(gaps).astype(np.int64)
        late = random.random(events) < 0.01
        times_us = due_us - np.where(late, random.integers(0, DELAY_US, events), 0)
        now_us, frontier_us = int(due_us[-1]), max(frontier_us, int(times_us.max()))
        keys = random.integers(0, JOIN_KEYS, events) if ladder is None else _zipf(ladder, random, events)
        sides = random.integers(0, 2, events) if joins else np.zeros(events, np.int64)
        values = random.integers(0, 1000, events)
        yield Batch(keys, times_us, values, sides, frontier_us - DELAY_US)


def _zipf(ladder: npt.NDArray[np.float64], random: np.random.Generator, events: int) -> I64:
    keys: I64 = np.searchsorted(ladder, random.random(events) * ladder[-1]).astype(np.int64)
    return keys


def rows_of(batch: Batch, spec: OperatorSpec) -> pa.RecordBatch:
    """The events as the operator's input."""
    values: dict[str, npt.NDArray[Any]] = {
        HASH: _hashes(batch.keys),
        TIME: batch.times_us,
        SIDE: batch.sides.astype(np.int8),
        "k0": batch.keys,
        "v0": batch.values,
    }
    schema = input_schema(spec)
    columns = [pa.array(values[field.name]).view(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _hashes(keys: I64) -> I64:
    """SplitMix64's finaliser."""
    words = (keys.view(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return (words ^ (words >> np.uint64(31))).view(np.int64)
