"""Protects windows from their batches: without late rows, the result in the end is always the same.

It does not depend on the cut of the input into batches, nor on the number of partitions. Joins without a
window: `test_join_cuts.py`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bounded_state import CASES, spec_of

from headrace.plan.columns import DELETE, UPDATE_BEFORE
from headrace.plan.spec import HASH, SIDE, TIME, OperatorSpec, input_schema
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import rows_of

SECOND = 1_000_000
DELAY, END = 4 * SECOND, 10_000 * SECOND
Row = tuple[int, int, int, int]  # key, side, time, value
NAMES = [name for name in CASES if not name.startswith(("dedup", "a function", "tumbling, late"))]

rows = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 60 * SECOND), st.integers(0, 9)),
    max_size=40,
    unique_by=lambda row: row[2],
).map(lambda listed: sorted(listed, key=lambda row: row[2]))
cuts = st.lists(st.integers(0, 40), max_size=6)


def batch_of(spec: OperatorSpec, listed: list[Row]) -> pa.RecordBatch:
    schema = input_schema(spec)
    values: dict[str, Any] = {
        HASH: [(key << 60) - (1 << 63) for key, *_ in listed],
        TIME: [time for *_, time, _ in listed],
        SIDE: [side for _, side, *_ in listed],
        "k0": [key for key, *_ in listed],
        "v0": [value for *_, value in listed],
    }
    return pa.RecordBatch.from_arrays([pa.array(values[f.name], f.type) for f in schema], schema=schema)


class Result:
    """What a reader of the results has in the end."""

    def __init__(self, spec: OperatorSpec) -> None:
        self._emit, self._keys = spec.emit, 3  # the key and the bounds of its window
        self.rows: Counter[Any] = Counter()
        self._latest: dict[Any, Any] = {}

    def take(self, emitted: list[tuple[Any, ...]]) -> None:
        for row in (tuple(tuple(one) if isinstance(one, list) else one for one in row) for row in emitted):
            if self._emit == "changelog":
                self.rows[row[:-1]] += -1 if row[-1] in (DELETE, UPDATE_BEFORE) else 1
            elif self._emit == "changes":
                self._latest[row[: self._keys]] = row
            else:
                self.rows[row] += 1

    @property
    def final(self) -> Counter[Any]:
        return +self.rows + Counter(self._latest.values())


def result(spec: OperatorSpec, listed: list[Row], ends: list[int], partitions: int) -> Counter[Any]:
    bounds = sorted({0, *(end for end in ends if end < len(listed)), len(listed)})
    read, watermark = Result(spec), -END
    with tempfile.TemporaryDirectory() as folder:
        labs = [StoreLab(spec, Path(folder) / str(at)) for at in range(partitions)]
        for at, to in [*pairwise(bounds), (0, 0)]:
            watermark = END if to == 0 else max([watermark, *(row[2] - DELAY for row in listed[at:to])])
            for number, lab in enumerate(labs):
                lab.begin()
                lab.store.apply(
                    batch_of(spec, [row for row in listed[at:to] if row[0] % partitions == number])
                )
                write = lab.store.gather(watermark)
                read.take(rows_of(lab.store.results(watermark)))
                lab.settle(write(), watermark)
    return read.final


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(rows, cuts, st.integers(1, 4))
def test_results_do_not_depend_on_the_cut(
    name: str, listed: list[Row], ends: list[int], partitions: int
) -> None:
    spec = spec_of(name)
    at_once = result(spec, listed, [], 1)
    assert result(spec, listed, ends, partitions) == at_once
    assert bool(at_once) == bool(listed)
