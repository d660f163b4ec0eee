"""Protects joins from their batches: without late rows, the rows that have come out in the end are the same
for every cut of the input into batches, and for every number of partitions."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plan.spec import ALONE, LEFT, RIGHT, Field, OperatorSpec, input_schema
from headrace.plan.work.joins.condition import Term
from headrace.plan.work.joins.stream_join import Matching, Meets, StreamJoin
from headrace.testing.contracts.store_lab import StoreLab
from headrace.testing.contracts.store_model import rows_of

Row = tuple[int | None, int, int, int]  # key, side, time, how long a right row matches
Out = Counter[tuple[Any, ...]]
DELAY, END = 6, 10_000
HASHED = {None: 2, 0: 0, 1: 1, 2: 2, 3: 3, 4: 5}  # of keys

rows = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1, 2, 3, 4]),
        st.sampled_from([LEFT, RIGHT]),
        st.integers(0, 60),
        st.integers(0, 12),
    ),
    max_size=40,
).map(lambda listed: sorted(listed, key=lambda row: row[2]))
cuts = st.lists(st.integers(0, 40), max_size=6)

# Rows are numbered in the order of time: right rows that come later, but not much.
AHEAD: Term = (
    "and",
    ("less", ("left", "v0", "int64"), ("right", "v0", "int64")),
    (
        "less",
        ("subtract", "int64", ("right", "v0", "int64"), ("left", "v0", "int64")),
        ("literal", "int64", 9),
    ),
)
KINDS: list[Any] = [
    *((how, "both", (-5, 5), False) for how in ("inner", "left", "right", "full", "semi", "anti")),
    *((how, "both", None, True) for how in ("inner", "left", "semi", "anti")),
    ("inner", "both", None, False),
    ("left", "settled", (0, 8), False),
]
CASES = [*((*kind, None) for kind in KINDS), *((*kind, AHEAD) for kind in KINDS[1:10])]


def spec_of(
    how: Matching, meets: Meets, bounds: tuple[int, int] | None, until: bool, where: Term | None
) -> OperatorSpec:
    fields = (Field("v0", "int64", "n"), Field("v1", "timestamp", "end"))
    lower, upper = bounds or (None, None)
    bucket = 4 if bounds or until else 0
    end = "v1" if until else None
    work = StreamJoin(how, fields, fields, lower, upper, bucket, meets, until=end, where=where)
    return OperatorSpec(
        name="join-1",
        keys=(Field("k0", "int32", "k"),),
        inputs=fields,
        work=work,
        window=None,
        emit="changes",
        timed=True,
        delays_ms=(0, 0),
        partitions=1,
        store="aar",
    )


def batch_of(spec: OperatorSpec, numbered: list[tuple[int, Row]]) -> pa.RecordBatch:
    columns: list[list[Any]] = [[], [], [], [], [], []]
    for number, (key, side, time, length) in numbered:
        values = (HASHED[key] << 60, time, side + ALONE * (key is None), key, number, time + length)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    schema = input_schema(spec)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def emitted(spec: OperatorSpec, listed: list[Row], ends: list[int], partitions: int) -> Out:
    """All results of all partitions; the watermark follows the largest time and in the end passes all."""
    bounds = sorted({0, *(end for end in ends if end < len(listed)), len(listed)})
    numbered, out = list(enumerate(listed)), Counter[tuple[Any, ...]]()
    with tempfile.TemporaryDirectory() as folder:
        labs = [StoreLab(replace(spec), Path(folder) / str(at)) for at in range(partitions)]
        watermark = -1
        for at, to in [*pairwise(bounds), (0, 0)]:
            batch = numbered[at:to]
            watermark = END if to == 0 else max([watermark, *(row[2] - DELAY for _, row in batch)])
            for lab_number, lab in enumerate(labs):
                own = [one for one in batch if HASHED[one[1][0]] % partitions == lab_number]
                lab.begin()
                lab.store.apply(batch_of(spec, own))
                write = lab.store.gather(watermark)
                out.update(rows_of(lab.store.results(watermark)))
                lab.settle(write(), watermark)
    return out


@pytest.mark.parametrize(("how", "meets", "bounds", "until", "where"), CASES)
@settings(max_examples=25, deadline=None)
@given(rows, cuts, st.integers(1, 4))
def test_results_do_not_depend_on_the_cut(
    how: Matching,
    meets: Meets,
    bounds: Any,
    until: bool,
    where: Term | None,
    listed: list[Row],
    ends: list[int],
    partitions: int,
) -> None:
    spec = spec_of(how, meets, bounds, until, where)
    assert isinstance(spec.work, StreamJoin)
    kept = [row for row in listed if row[0] is not None or spec.work.keeps_alone(row[1])]
    at_once = emitted(spec, kept, [], 1)
    assert emitted(spec, kept, ends, partitions) == at_once
