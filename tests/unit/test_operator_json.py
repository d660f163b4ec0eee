"""Protects state of earlier releases: operators keep the JSON and digest that their state was written with.

`tests/data/operators.json` was recorded before `OperatorSpec.work` existed. A kind of work that came later
has a form of its own, and is read back by the registry alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from headrace.checkpoint.operator_record import differences
from headrace.operators.registry import IMPLEMENTATIONS
from headrace.plan.columns import OutputColumn
from headrace.plan.ids import spec_digest
from headrace.plan.spec import (
    TIME,
    Accumulator,
    Field,
    Fold,
    Grouped,
    Holistic,
    HolisticResult,
    OperatorSpec,
    Window,
    WindowJoin,
    Work,
    input_schema,
    output_schema,
)
from headrace.plan.window import WindowKind
from headrace.plan.work.description import Description
from headrace.plan.work.registry import WORKS
from headrace.plan.work.stores import FittingStores

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "operators.json").read_text())
ACCUMULATORS = (
    Accumulator("count", None, "int64"),
    Accumulator("sum", "v0", "double"),
    Accumulator("sum", "v0", "int64", "wrap"),
    Accumulator("last", "v0", "double"),
)
RESULTS = (
    HolisticResult("percentile", "v0", "double", (0.5, 0.9), many=True),
    HolisticResult("top", "v0", "double", (3.0,), by="v1", ties=True),
)
AMOUNT, PRICE = Field("v0", "double", "amount"), Field("v0", "double", "price")
WRITTEN: dict[str, Work] = {
    "fold": Fold(ACCUMULATORS),
    "combined_fold": Fold(ACCUMULATORS[:2], combined=True),
    "session_fold": Fold(ACCUMULATORS),
    "holistic": Holistic(RESULTS, ACCUMULATORS[:1]),
    "window_join": WindowJoin("left", (AMOUNT, Field(TIME, "timestamp", "seen")), (PRICE,)),
    "grouped": Grouped(),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_operators_are_read_and_written_as_before(name: str) -> None:
    spec = OperatorSpec.from_json(RECORDED[name]["json"])
    assert spec.work == WRITTEN[name]
    assert spec.to_json() == RECORDED[name]["json"]
    assert spec_digest(spec) == RECORDED[name]["digest"]


def test_every_kind_of_work_has_code_that_runs_it() -> None:
    assert set(IMPLEMENTATIONS) == set(WORKS.values())
    assert all(work.name == name for name, work in WORKS.items())


@dataclass(frozen=True)
class Distinct(Work):
    """A kind of work that no release has."""

    name: ClassVar[str] = "distinct"
    noun: ClassVar[str] = "a filter"
    phrase: ClassVar[str] = "a filter of duplicates"

    ttl_us: int

    def output_columns(self, inputs: tuple[Field, ...]) -> list[OutputColumn]:
        return [OutputColumn("__kind", "int8", nullable=False)]

    def stores(self, window: WindowKind) -> FittingStores | None:
        return (
            FittingStores(("rmw",), "each row reads one state row of its key") if window == "none" else None
        )

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        return cls(**members)

    def describe(self, inputs: tuple[Field, ...]) -> Description:
        return Description((("the time to live", f"{self.ttl_us} us"),))


def distinct(ttl_us: int, kind: str = "double") -> OperatorSpec:
    key = (Field("k0", "int64", "user"),)
    return OperatorSpec("d", key, (Field("v0", kind, "v"),), Distinct(ttl_us), None, "changes", True, (), 4)


def test_a_new_kind_of_work_needs_one_line_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = distinct(5)
    assert json.loads(spec.to_json())["work"] == {"name": "distinct", "ttl_us": 5}
    with pytest.raises(ValueError, match="'distinct' is not a kind of work"):
        OperatorSpec.from_json(spec.to_json())
    monkeypatch.setitem(WORKS, Distinct.name, Distinct)
    assert OperatorSpec.from_json(spec.to_json()) == spec
    assert input_schema(spec).names == ["__hash", "__time", "k0", "v0"]
    assert output_schema(spec).names == ["k0", "__kind"]


def test_a_new_kind_of_work_is_told_apart_by_digest_and_in_words() -> None:
    fold = OperatorSpec.from_json(RECORDED["fold"]["json"])
    specs = [fold, distinct(5), distinct(6), distinct(5, "int64")]
    assert len({spec_digest(spec) for spec in specs}) == len(specs)
    assert differences(distinct(5), distinct(6)) == ["the time to live was 5 us, is now 6 us"]
    assert differences(fold, distinct(5)) == ["it was an aggregate, is now a filter"]


def test_a_window_belongs_to_the_operator_and_not_to_its_work() -> None:
    spec = OperatorSpec.from_json(RECORDED["holistic"]["json"])
    assert spec.window == Window(10_000_000, session=True, ends="v1")
