"""Protects what each accumulator means: overflow, order, nulls and ties as Spark SQL has them, and that the
kernels equal their plain reference."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import array, plain

from headrace.errors import ArithmeticOverflow
from headrace.kernels import reference, warm
from headrace.kernels.core import order
from headrace.plan.spec import HASH, TIME, Accumulator, Field, OperatorSpec
from headrace.plan.work.fold import Fold as Work
from headrace.row.layout import RowLayout
from headrace.store.rows.arrow import column_of, probe_of, results_of
from headrace.store.tables.fold import Arena, Fold
from headrace.store.tables.table import Table

TOP = (1 << 63) - 1


def result(accumulator: Accumulator, items: list[Any], times: list[int | None] | None = None) -> Any:
    """Fold values of one key, one batch per half, and read the result."""
    field = Field("i0", accumulator.type)
    spec = OperatorSpec("op", (), (field,), Work((accumulator,)), None, "changes", times is not None, (), 1)
    table = Table(RowLayout(spec))
    columns = {HASH: pa.array([7] * len(items), pa.int64()), "i0": array(field.type, items)}
    if times is not None:
        columns[TIME] = array("timestamp", times)
    batch, half = pa.record_batch(columns), len(items) // 2
    for part in (batch.slice(0, half), batch.slice(half)):
        ids, _ = table.upsert(probe_of(table.layout, part))
        table.accumulate(ids, part)
    out = next(results_of(table.layout, table.whole_run(), None, 10))
    answers = [plain(accumulator.type, column)[0] for column in out.columns]
    return tuple(answers) if accumulator.kind == "moments" else answers[0]


def test_int_sum_wraps_errs_or_is_lost_as_told() -> None:
    wrap, error, null = (Accumulator("sum", "i0", "int64", how) for how in ("wrap", "error", "null"))
    assert result(wrap, [TOP, 1]) == -TOP - 1
    assert result(error, [TOP, -1, 1]) == TOP
    assert result(error, [-TOP, -1]) == -TOP - 1
    assert result(null, [TOP, 1, -1]) is None
    for values in ([TOP, 1], [-TOP - 1, -1]):
        with pytest.raises(ArithmeticOverflow, match="i0"):
            result(error, values)


def test_duration_sum_always_errs() -> None:
    assert result(Accumulator("sum", "i0", "duration", "wrap"), [5, None, 7]) == 12
    with pytest.raises(ArithmeticOverflow):
        result(Accumulator("sum", "i0", "duration", "wrap"), [TOP, 1])


@pytest.mark.parametrize("sign", [1, -1])
def test_decimal_sum_is_lost_or_errs_at_its_precision(sign: int) -> None:
    small, cent = sign * Decimal("999.99"), sign * Decimal("0.01")
    nines = reference.scaled(sign * (10**38 - 1), 0)
    narrow = Accumulator("sum", "i0", "decimal(5,2)", "null")
    assert result(narrow, [small, -small, small]) == small
    assert result(narrow, [small, cent, -small]) is None
    # Here the sum leaves 128 bits too.
    assert result(Accumulator("sum", "i0", "decimal(38,0)", "null"), [nines, nines]) is None
    for of, values in (("decimal(38,0)", [nines, nines]), ("decimal(5,2)", [small, small])):
        with pytest.raises(ArithmeticOverflow):
            result(Accumulator("sum", "i0", of, "error"), values)


def test_decimal_sum_carries_between_words() -> None:
    edge = Decimal((1 << 64) - 1)
    accumulator = Accumulator("sum", "i0", "decimal(38,0)", "error")
    assert result(accumulator, [edge, Decimal(1)]) == 1 << 64
    assert result(accumulator, [-edge, Decimal(-1), Decimal(-1)]) == -(1 << 64) - 1
    assert result(accumulator, [Decimal(1), -edge - 1]) == -edge


@pytest.mark.parametrize("of", ["float", "double"])
def test_floats_order_as_in_spark(of: str) -> None:
    nan, inf = math.nan, math.inf
    assert math.isnan(result(Accumulator("max", "i0", of), [inf, nan, 1.0]))
    assert result(Accumulator("min", "i0", of), [nan, inf, None]) == inf
    assert math.isnan(result(Accumulator("min", "i0", of), [nan, -nan]))
    assert result(Accumulator("min", "i0", of), [1.0, -inf, nan]) == -inf
    assert (
        math.copysign(1, result(Accumulator("min", "i0", of), [0.0, -0.0])) == 1
    )  # equal: the first stays


def test_strings_order_by_bytes() -> None:
    words = ["b", "ab", "a", "a\0", "é", "\U0001f600", "\uffff", ""]
    assert result(Accumulator("max", "i0", "string"), words) == "\U0001f600"
    assert result(Accumulator("min", "i0", "string"), words) == ""
    assert result(Accumulator("min", "i0", "string"), words[:-1]) == "a"
    assert result(Accumulator("max", "i0", "binary"), [b"\x7f", b"\x80", b"\x80\0", None]) == b"\x80\0"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=3) | st.sampled_from([b"\x7f", b"\x80", b"\xff"]), min_size=1, max_size=6)
)
def test_binaries_order_as_python_orders_bytes(items: list[bytes]) -> None:
    assert result(Accumulator("max", "i0", "binary"), items) == max(items)
    assert result(Accumulator("min", "i0", "binary"), items) == min(items)


def test_nothing_but_nulls() -> None:
    nulls = [None, None]
    assert result(Accumulator("count", "i0", "int64"), nulls) == 0
    assert result(Accumulator("count", None, "int64"), nulls) == 2
    assert result(Accumulator("sum", "i0", "double"), nulls) is None
    assert result(Accumulator("max", "i0", "string"), nulls) is None
    assert result(Accumulator("moments", "i0", "double"), nulls) == (0.0, 0.0, 0.0)


def test_moments_of_known_numbers() -> None:
    assert result(Accumulator("moments", "i0", "double"), [2.0, 4.0, None, 9.0]) == (3.0, 5.0, 26.0)
    n, mean, squares = result(Accumulator("moments", "i0", "double"), [2.0, math.nan, 4.0])
    assert n == 3.0
    assert math.isnan(mean)
    assert math.isnan(squares)


@pytest.mark.parametrize("of", ["int64", "string", "decimal(9,0)"])
def test_first_and_last_follow_event_time(of: str) -> None:
    one, two, three = {"string": "abc"}.get(of, [Decimal(i) if of != "int64" else i for i in (1, 2, 3)])
    first, last = Accumulator("first", "i0", of), Accumulator("last", "i0", of)
    assert result(first, [one, two, three], [5, -3, 9]) == two
    assert result(last, [one, three, two], [5, 9, 7]) == three
    # Of equal times: first the smallest, last the largest, null the smallest of all.
    assert result(first, [two, one, three], [5, 5, 5]) == one
    assert result(first, [two, None, one], [5, 5, 5]) is None
    assert result(last, [two, three, one], [5, 5, 5]) == three
    assert result(last, [None, one, None], [5, 5, 5]) == one
    # A later null is remembered; a row without a time is not seen.
    assert result(last, [one, None], [5, 6]) is None
    assert result(last, [one, None, two], [5, 6, 7]) == two
    assert result(last, [one, two], [5, None]) == one
    assert result(first, [one], [None]) is None


def test_flags_reach_beyond_the_first_word() -> None:
    kept = tuple(Accumulator("max" if i % 2 else "first", "i0", "int64") for i in range(70))
    spec = OperatorSpec("op", (), (Field("i0", "int64"),), Work(kept), None, "changes", True, (), 1)
    table = Table(RowLayout(spec))
    columns = {
        HASH: pa.array([1, 1]),
        TIME: array("timestamp", [2, 1]),
        "i0": pa.array([4, None], pa.int64()),
    }
    batch = pa.record_batch(columns)
    ids, _ = table.upsert(probe_of(table.layout, batch))
    table.accumulate(ids, batch)
    row = next(results_of(table.layout, table.whole_run(), None, 10)).to_pylist()[0]
    assert [row[f"a{i}"] for i in range(70)] == [4 if i % 2 else None for i in range(70)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 3), max_size=60))
def test_order_equals_reference(items: list[int]) -> None:
    hashes = np.array(items, np.uint64)
    assert order.by_hash(hashes).tolist() == reference.by_hash(hashes).tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=20)), max_size=12), st.data())
def test_take_and_repack_equal_reference(pairs: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    heap = b"??" + b"".join(a + b for a, b in pairs)
    words, at = np.zeros((len(pairs), 3), np.uint64), 2
    for i, pair in enumerate(pairs):
        words[i, 1] = i
        for word, value in zip((0, 2), pair, strict=True):
            words[i, word] = at << 24 | len(value)
            at += len(value)
    ids = data.draw(st.lists(st.sampled_from(range(len(pairs))), max_size=12)) if pairs else []
    row_ids, variable = np.array(ids, np.int64), np.array([0, 2])
    source = np.frombuffer(heap, np.uint8)
    expected, expected_heap = reference.gather(words, source, ids, (0, 2))
    out = np.empty_like(expected)
    order.take(words, row_ids, out)
    out_heap = np.empty(order.held_bytes(out, len(out), variable), np.uint8)
    order.repack(out, len(out), variable, source, out_heap)
    assert out.tolist() == expected.tolist()
    assert out_heap.tobytes() == expected_heap


LIMIT = 10**38 - 1
DIGITS = st.integers(-LIMIT, LIMIT) | st.sampled_from([0, -1, (1 << 64) - 1, -(1 << 64), LIMIT, -LIMIT])


@settings(max_examples=80, deadline=None)
@given(st.lists(DIGITS.map(Decimal), max_size=6))
def test_decimal_kernels_equal_reference(items: list[Decimal]) -> None:
    for kind in ("sum", "min", "max"):
        accumulator = Accumulator(kind, "i0", "decimal(38,0)", "null")  # type: ignore[arg-type]
        spec = OperatorSpec(
            "op", (), (Field("i0", accumulator.type),), Work((accumulator,)), None, "changes", False, (), 1
        )
        layout = RowLayout(spec)
        fold = Fold.of(layout, layout.accumulators[0])
        rows = np.zeros((1, layout.width), np.uint64)
        column = column_of(array(accumulator.type, items), accumulator.type)
        arena = Arena(rows, np.zeros(0, np.uint8), np.zeros(2, np.int64))
        fold.run(arena, np.zeros(len(items), np.int64), column, column)
        expected = reference.fold(accumulator, [(None, value) for value in items])
        if expected is not None:
            assert reference.wide(int(rows[0, fold.word]), int(rows[0, fold.word + 1])) == expected
        assert bool(rows[0, fold.flag] & fold.second) == (expected is None and bool(items))


def test_every_kernel_is_ready_after_warm() -> None:
    assert {"tables.accumulate", "tables.table", "core.order", "core.bytes"} <= set(warm.warm())
    # One signature each: a batch can never make the host compile.
    assert len(order.take.signatures) == 1
    assert not order.take._can_compile
