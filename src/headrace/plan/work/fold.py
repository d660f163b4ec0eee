"""Fold: every row changes the accumulators of one state row per key and window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from headrace.plan.columns import ROWS, OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.accumulator import Accumulator, partial_name, result_columns
from headrace.plan.work.base import Columns, Inputs, Work
from headrace.plan.work.description import Description, Parts
from headrace.plan.work.flat import accumulator_digest, accumulators_in, flat
from headrace.plan.work.stores import FittingStores

_STATE_ROW: dict[WindowKind, str] = {
    "none": "state row of its key",
    "fixed": "state row of its key and slice",
    "session": "session of its key",
}


@dataclass(frozen=True)
class Fold(Work):
    """Accumulators per key; `combined` rows were combined by key and slice before the shuffle."""

    name: ClassVar[str] = "fold"
    noun: ClassVar[str] = "an aggregate"
    phrase: ClassVar[str] = "an operator that folds rows into accumulators"
    adds_up: ClassVar[bool] = True

    accumulators: tuple[Accumulator, ...] = ()
    combined: bool = False

    def mark_columns(self) -> Columns:
        return [(ROWS, "int64")] if self.combined else []

    def input_columns(self, inputs: Inputs) -> Columns:
        if not self.combined:
            return super().input_columns(inputs)
        return [(partial_name(at), one.type) for at, one in enumerate(self.accumulators)]

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        return accumulator_columns(self.accumulators)

    @property
    def can_combine(self) -> bool:
        return all(one.can_combine for one in self.accumulators)

    def combining(self) -> Fold:
        return replace(self, combined=True)

    def stores(self, window: WindowKind) -> FittingStores:
        reason = f"each row changes one {_STATE_ROW[window]} (point update)"
        return FittingStores(("rmw", "memory", "rocksdb"), reason)

    def to_json(self) -> dict[str, Any]:
        return flat(self.accumulators, combined=self.combined)

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        return cls(accumulators_in(members), members["combined"])

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        return {"accumulators": accumulator_digest(self.accumulators)}

    def describe(self, inputs: Inputs) -> Description:
        by_name = {field.name: field for field in inputs}
        parts = tuple(one.describe(by_name) for one in self.accumulators)
        return Description(lists=(Parts("aggregate", parts, named=False),))


def accumulator_columns(accumulators: tuple[Accumulator, ...]) -> list[OutputColumn]:
    """The result columns of all accumulators: `a0`, `a1`, …"""
    return [column for at, one in enumerate(accumulators) for column in result_columns(at, one)]
