"""Retracting: accumulators of groups that change and may vanish; a hidden accumulator counts their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from headrace.plan.columns import OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.accumulator import Accumulator
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description, Parts
from headrace.plan.work.flat import accumulator_digest
from headrace.plan.work.fold import accumulator_columns
from headrace.plan.work.stores import FittingStores


@dataclass(frozen=True)
class Retracting(Work):
    """Accumulators per key; accumulator number `rows` is the number of rows, and 0 means no group."""

    name: ClassVar[str] = "retracting"
    noun: ClassVar[str] = "an aggregate of changing groups"
    phrase: ClassVar[str] = "an aggregate of changing groups"

    accumulators: tuple[Accumulator, ...] = ()
    rows: int = 0

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        return accumulator_columns(self.accumulators)

    def stores(self, window: WindowKind) -> FittingStores | None:
        if window == "session":
            return None
        reason = "each row changes one state row of its key, whose row before is compared (point update)"
        return FittingStores(("rmw", "memory"), reason)

    def to_json(self) -> dict[str, Any]:
        accumulators = [one.to_json() for one in self.accumulators]
        return {"work": {"name": self.name, "accumulators": accumulators, "rows": self.rows}}

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        return cls(tuple(Accumulator(**one) for one in members["accumulators"]), members["rows"])

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        accumulators = accumulator_digest(self.accumulators)
        return {"work": self.name, "accumulators": accumulators, "rows": self.rows}

    def describe(self, inputs: Inputs) -> Description:
        by_name = {field.name: field for field in inputs}
        parts = tuple(one.describe(by_name) for one in self.accumulators)
        return Description(lists=(Parts("aggregate", parts, named=False),))
