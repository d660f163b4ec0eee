"""Protects conditions over both rows of a pair: their values are those of three-valued logic in plain
Python, with Spark's order of NaN, and their JSON form is the same term again."""

from __future__ import annotations

import json
import math
import operator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ArithmeticOverflow
from headrace.plan.spec import HASH, LEFT, RIGHT, SIDE, TIME, Field, OperatorSpec, input_schema
from headrace.plan.work.joins.condition import Term, inputs_in, spelled, term_of
from headrace.plan.work.joins.stream_join import StreamJoin
from headrace.store.pairs.conditions import holds
from headrace.store.rows.kept_layout import KeptLayout, pieces_of
from headrace.store.rows.kept_values import KeptValues

FIELDS = (Field("v0", "int64", "n"), Field("v1", "double", "x"), Field("v2", "bool", "b"))
SPEC = OperatorSpec(
    name="join-1",
    keys=(Field("k0", "int32", "k"),),
    inputs=FIELDS,
    work=StreamJoin("left", FIELDS, FIELDS, -5, 5),
    window=None,
    emit="changes",
    timed=True,
    delays_ms=(0, 0),
    partitions=1,
)
OPERATORS = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
}
Row = tuple[int | None, float | None, bool | None]

doubles = st.sampled_from([None, 0.0, -0.0, 1.5, -2.0, math.inf, math.nan])
values: Any = st.tuples(st.none() | st.integers(-9, 9), doubles, st.none() | st.booleans())
sides = st.sampled_from(["left", "right"])


def column(at: int) -> st.SearchStrategy[Term]:
    return sides.map(lambda side: (side, f"v{at}", FIELDS[at].type))


numbers = st.recursive(
    column(0) | st.integers(-9, 9).map(lambda value: ("literal", "int64", value)),
    lambda one: st.tuples(st.sampled_from(["add", "subtract", "multiply"]), st.just("int64"), one, one),
    max_leaves=4,
)
compared = st.one_of(
    *(
        st.tuples(st.sampled_from([*OPERATORS, "same"]), one, one)
        for one in (numbers, column(1), column(2))
    ),
    st.tuples(st.just("null"), column(1) | numbers),
    column(2),
)
truths = st.recursive(
    compared,
    lambda one: st.tuples(st.sampled_from(["and", "or"]), one, one) | st.tuples(st.just("not"), one),
    max_leaves=5,
)


def rank(value: Any) -> Any:
    """NaN is equal to itself and above every other number."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def meaning(term: Term, rows: dict[str, Row]) -> Any:
    """The value of a term for one pair; None is null."""
    name = term[0]
    if name in rows:
        return rows[name][int(term[1][1:])]
    if name == "literal":
        return term[2]
    parts = [meaning(part, rows) for part in term[1:] if isinstance(part, tuple)]
    if name == "null":
        return parts[0] is None
    if name == "not":
        return None if parts[0] is None else not parts[0]
    if name in ("and", "or"):
        decides = name == "or"
        return decides if decides in parts else (None if None in parts else not decides)
    if name == "same" and None in parts:
        return parts[0] is parts[1]
    if None in parts:
        return None
    if name in OPERATORS or name == "same":
        return OPERATORS.get(name, operator.eq)(*map(rank, parts))
    return {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}[name](*parts)


def values_of(side: int, rows: list[Row]) -> KeptValues:
    layout, count = KeptLayout(SPEC), len(rows)
    columns = {HASH: [0] * count, TIME: [0] * count, SIDE: [side] * count, "k0": [1] * count}
    columns |= {f"v{at}": [row[at] for row in rows] for at in range(3)}  # type: ignore[dict-item]
    schema = input_schema(SPEC)
    arrays = [pa.array(columns[one.name], one.type) for one in schema]
    return KeptValues(layout, pieces_of(layout, pa.RecordBatch.from_arrays(arrays, schema=schema)))


def flags(term: Term, pairs: list[tuple[Row, Row]]) -> list[bool]:
    numbered = pa.array(range(len(pairs)), pa.int64()).to_numpy()
    lefts, rights = ([pair[side] for pair in pairs] for side in (0, 1))
    known = {LEFT: (values_of(LEFT, lefts), numbered), RIGHT: (values_of(RIGHT, rights), numbered)}
    return list(holds(term, known).tolist())


@settings(max_examples=200, deadline=None)
@given(truths, st.lists(st.tuples(values, values), min_size=1, max_size=8))
def test_a_condition_is_its_meaning(term: Term, pairs: list[tuple[Row, Row]]) -> None:
    expected = [meaning(term, {"left": left, "right": right}) is True for left, right in pairs]
    assert flags(term, pairs) == expected


@given(truths)
def test_a_condition_is_the_same_after_json(term: Term) -> None:
    assert term_of(json.loads(json.dumps(term))) == term


def test_casts_and_magnitudes() -> None:
    off = ("abs", "int64", ("subtract", "int64", ("left", "v0", "int64"), ("right", "v0", "int64")))
    near = ("less", ("cast", "double", off), ("right", "v1", "double"))
    assert flags(near, [((1, None, None), (4, 3.5, None)), ((9, None, None), (4, 3.5, None))]) == [
        True,
        False,
    ]
    assert flags(near, []) == []
    assert spelled(near, {("left", "v0"): "price"}) == "(double(abs((price - v0))) < v1)"
    assert sorted(inputs_in(near)) == [
        ("left", "v0", "int64"),
        ("right", "v0", "int64"),
        ("right", "v1", "double"),
    ]


def test_an_overflow_is_an_error() -> None:
    twice = ("multiply", "int64", ("left", "v0", "int64"), ("right", "v0", "int64"))
    with pytest.raises(ArithmeticOverflow, match="multiply of int64"):
        flags(("less", twice, ("literal", "int64", 0)), [((1 << 62, None, None), (4, None, None))])
