"""Protects state variables between two runs: places of stored values stay, compatible schemas are taken,
others are refused by name."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as T

from headrace.errors import OperatorChanged
from headrace.plan.work.cells import Cells, Variable
from headrace.plan.work.evolution import schema_changes
from headrace.spark.processors.convert import RowConverter
from headrace.spark.processors.ddl import struct_of

TAKEN = [
    ("n int", "n long", [7], (7,)),
    ("n byte", "n double", [7], (7.0,)),
    ("n float", "n double", [0.5], (0.5,)),
    ("n long", "n long, note string", [7], (7, None)),
    ("n decimal(10,2)", "n decimal(12,2)", ["7.25"], None),
    ("a array<int>", "a array<long>", [[1, 2]], ([1, 2],)),
    ("s struct<a:int>", "s struct<a:long,b:string>", [[1]], (T.Row(a=1, b=None),)),
]
REFUSED = [
    ("n long", "n int", "n was long, is now integer"),
    ("n long, m long", "n long", "m: fields are missing"),
    ("n long", "m long", "n became m"),
    ("n long", "n long, m long not null", "m is new and not nullable"),
    ("n long, m long", "n long, k long, m long", "m became k"),
    ("n double", "n float", "n was double, is now float"),
    ("n string", "n long", "n was string, is now long"),
    ("s struct<a:long>", "s struct<a:int>", "s.a was long, is now integer"),
    ("n decimal(10,2)", "n decimal(10,4)", "n was decimal"),
]


def variable(name: str, schema: str = "n long", kind: str = "value", ttl_ms: int = 0) -> Variable:
    return Variable(name, kind, struct_of(schema).json(), ttl_ms=ttl_ms)


@pytest.mark.parametrize(("before", "now", "stored", "shown"), TAKEN)
def test_compatible_schemas_read_stored_values(before: str, now: str, stored: list, shown: tuple) -> None:
    assert schema_changes(struct_of(before).json(), struct_of(now).json()) == []
    loaded = RowConverter(struct_of(now)).load(json.loads(json.dumps(stored)))
    assert shown is None or loaded == shown
    assert shown is None or [type(one) for one in loaded] == [type(one) for one in shown]


@pytest.mark.parametrize(("before", "now", "message"), REFUSED)
def test_other_schemas_are_refused_by_name(before: str, now: str, message: str) -> None:
    changed = "; ".join(schema_changes(struct_of(before).json(), struct_of(now).json()))
    assert message in changed


def test_variables_keep_their_places() -> None:
    first = Cells((variable("a"), variable("b")))
    second = Cells((variable("new"), variable("b", "n long, note string")))
    evolved = second.evolved(first)
    assert isinstance(evolved, Cells)
    assert [one.name for one in evolved.variables] == ["a", "b", "new"]
    again = second.evolved(evolved)
    assert again == evolved


def test_a_deleted_variable_leaves_its_place_empty() -> None:
    first = Cells((variable("a"), variable("b")))
    second = Cells((variable("b"),), deleted=("a",)).evolved(first)
    assert isinstance(second, Cells)
    third = Cells((variable("a"), variable("b"))).evolved(second)
    assert isinstance(third, Cells)
    assert [one.name for one in third.variables][1:] == ["b", "a"]
    assert third.variables[0].kind == "deleted"


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (variable("a", kind="list"), "a value state, is now a list state"),
        (variable("a", ttl_ms=5), "time to live"),
        (variable("a", "n string"), "n was long, is now string"),
    ],
)
def test_changed_variables_are_refused(now: Variable, message: str) -> None:
    with pytest.raises(OperatorChanged, match=message):
        Cells((now,)).evolved(Cells((variable("a"),)))


def test_json_is_as_before_where_nothing_is_deleted() -> None:
    work = Cells((variable("a"),), "none")
    assert set(work.to_json()["work"]) == {"name", "variables", "time_mode"}
    assert Cells.from_json({**work.to_json()["work"]}) == work
