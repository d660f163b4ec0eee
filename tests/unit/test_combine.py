"""Protects combining whole state rows: folding rows in parts and combining the parts equals folding them
all, for every accumulator, with its ties, nulls and overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_model import Model, batch_of, rows_of, specs
from test_accumulate import TOP

from headrace.errors import ArithmeticOverflow
from headrace.kernels import reference
from headrace.plan.spec import (
    TIME,
    Accumulator,
    Field,
    Fold,
    OperatorSpec,
    Window,
)
from headrace.row.layout import RowLayout
from headrace.row.run import Run
from headrace.store.rows.arrow import probe_of
from headrace.store.tables.aligned import aligned
from headrace.store.tables.table import Table

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def folded(spec: OperatorSpec, rows: list[dict[str, Any]], hashes: int) -> Table:
    table = Table(RowLayout(spec))
    batch = batch_of(spec, rows, hashes)
    table.accumulate(table.upsert(probe_of(table.layout, batch))[0], batch)
    return table


def partial_sums_differ(spec: OperatorSpec, parts: list[list[dict[str, Any]]]) -> bool:
    """Whether a sum leaves its type in one order and not in another: then there is no one answer."""
    rows = [row for part in parts for row in part]
    return any(
        a.kind == "sum"
        and a.type != "double"
        and a.overflow == "null"
        and sum(abs(row[a.input]) for row in rows if row[a.input] is not None) >= limit_of(a)
        for a in spec.work.accumulators
    )


def limit_of(accumulator: Accumulator) -> Any:
    if accumulator.type == "int64":
        return TOP
    digits, scale = map(int, accumulator.type[8:-1].split(","))
    return reference.scaled(10**digits, scale)


def has_infinite(spec: OperatorSpec, rows: list[dict[str, Any]]) -> bool:
    """Sums and moments of infinities, or of numbers that cancel, depend on the order of adding."""
    inputs = [
        a.input for a in spec.work.accumulators if a.kind in ("sum", "moments") and a.type == "double"
    ]
    return any(row[name] is not None and not abs(row[name]) < 2.0**50 for row in rows for name in inputs)


@SLOW
@given(data=st.data(), spec=specs(), hashes=st.sampled_from([1, 3, 1 << 62]))
def test_combining_parts_equals_folding_all(data: st.DataObject, spec: OperatorSpec, hashes: int) -> None:
    parts = [data.draw(rows_of(spec)) for _ in range(data.draw(st.integers(1, 4)))]
    rows = [row for part in parts for row in part]
    if partial_sums_differ(spec, parts) or has_infinite(spec, rows):
        return
    model = Model(spec, hashes)
    model.add(rows)
    together, runs = Table(RowLayout(spec)), []
    for part in parts:
        half = folded(spec, part, hashes)
        runs.append(half.whole_run())
        together.absorb(half.view() if data.draw(st.booleans()) else runs[-1])
    assert model.results(together.whole_run()) == model.expected(set(model.seen))
    places = together.find(model.table.view())
    assert len(set(places.tolist())) == len(model.seen)
    assert (places >= 0).all()
    at_once = aligned(runs, RowLayout(spec))
    if at_once is None:
        assert len(set(together.hashes.tolist())) < len(together)
    else:
        assert model.results(at_once) == model.expected(set(model.seen))


@SLOW
@given(data=st.data(), spec=specs(), hashes=st.sampled_from([1, 1 << 62]))
def test_rows_combined_in_one_call_may_share_their_row(
    data: st.DataObject, spec: OperatorSpec, hashes: int
) -> None:
    run = folded(spec, data.draw(rows_of(spec)), hashes).whole_run()
    twice = Run(np.r_[run.order, run.order], np.concatenate([run.words, run.words]), run.heap)
    one, both = Table(RowLayout(spec)), Table(RowLayout(spec))
    one.absorb(run)
    one.absorb(run)
    both.absorb(twice)
    assert Model(spec, hashes).results(one.whole_run()) == Model(spec, hashes).results(both.whole_run())


def one_key(accumulator: Accumulator, parts: list[list[Any]], times: list[list[int]] | None = None) -> Any:
    """The result of parts of one key that were folded alone and combined."""
    spec = OperatorSpec(
        "op", (), (Field("i0", accumulator.type),), Fold((accumulator,)), Window(1), "changes", True, (), 1
    )
    together = Table(RowLayout(spec))
    for number, part in enumerate(parts):
        at = times[number] if times else [0] * len(part)
        rows = [{TIME: time, "i0": value} for time, value in zip(at, part, strict=True)]
        together.absorb(folded(spec, rows, 1).view())
    return Model(spec, 1).results(together.whole_run())[()][0]


def test_sums_overflow_between_parts_as_within_one() -> None:
    wrap, error, null = (Accumulator("sum", "i0", "int64", how) for how in ("wrap", "error", "null"))
    assert one_key(wrap, [[TOP], [1]]) == -TOP - 1
    assert one_key(error, [[TOP, -1], [1]]) == TOP
    assert one_key(null, [[TOP], [1], [-1]]) is None
    assert one_key(null, [[5], [TOP, 1], [-1]]) is None
    with pytest.raises(ArithmeticOverflow, match="i0"):
        one_key(error, [[TOP], [1]])


def test_decimals_stay_lost_between_parts() -> None:
    nines, less = reference.scaled(10**38 - 1, 0), reference.scaled(1 - 10**38, 0)
    null, error = (Accumulator("sum", "i0", "decimal(38,0)", how) for how in ("null", "error"))
    assert one_key(null, [[nines], [nines], [less]]) is None
    assert one_key(null, [[less, less], [nines]]) is None
    assert one_key(null, [[nines], [less], [nines]]) == nines
    with pytest.raises(ArithmeticOverflow):
        one_key(error, [[nines], [nines]])


def test_first_and_last_keep_their_ties_between_parts() -> None:
    first, last = Accumulator("first", "i0", "string"), Accumulator("last", "i0", "string")
    assert one_key(first, [["b"], ["a"]], [[1], [1]]) == "a"
    assert one_key(first, [["b"], [None]], [[1], [1]]) is None
    assert one_key(last, [[None], ["b" * 50], ["a"]], [[1], [1], [1]]) == "b" * 50
    assert one_key(last, [["long" * 9], [None]], [[1], [2]]) is None
    assert one_key(first, [["z"], ["y"]], [[-5], [-6]]) == "y"


def test_of_equal_extremes_the_first_stays() -> None:
    assert str(one_key(Accumulator("min", "i0", "float"), [[0.0], [-0.0]])) == "0.0"
    assert one_key(Accumulator("max", "i0", "string"), [["é"], ["\U0001f600"], [None]]) == "\U0001f600"
