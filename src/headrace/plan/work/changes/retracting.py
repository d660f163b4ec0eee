"""Retracting: accumulators of groups that change and may vanish; a hidden accumulator counts their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from headrace.plan.columns import OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.accumulator import Accumulator, result_columns
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description, Parts
from headrace.plan.work.flat import accumulator_digest
from headrace.plan.work.fold import accumulator_columns
from headrace.plan.work.stores import FittingStores


@dataclass(frozen=True)
class Retracting(Work):
    """Accumulators per key; accumulator number `rows` is the number of rows, and 0 means no group.

    If it is only that (`hides_rows`), a group in which nothing else changes has not changed.
    """

    name: ClassVar[str] = "retracting"
    noun: ClassVar[str] = "an aggregate of changing groups"
    phrase: ClassVar[str] = "an aggregate of changing groups"

    accumulators: tuple[Accumulator, ...] = ()
    rows: int = 0
    hides_rows: bool = False

    @property
    def hidden_columns(self) -> frozenset[str]:
        """Columns of a result that users do not see."""
        columns = result_columns(self.rows, self.accumulators[self.rows]) if self.hides_rows else []
        return frozenset(column.name for column in columns)

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        return accumulator_columns(self.accumulators)

    def stores(self, window: WindowKind) -> FittingStores | None:
        if window == "session":
            return None
        reason = "each row changes one state row of its key, whose row before is compared (point update)"
        return FittingStores(("rmw", "memory"), reason)

    def to_json(self) -> dict[str, Any]:
        accumulators = [one.to_json() for one in self.accumulators]
        hides = {"hides_rows": True} if self.hides_rows else {}
        return {"work": {"name": self.name, "accumulators": accumulators, "rows": self.rows, **hides}}

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        accumulators = tuple(Accumulator(**one) for one in members["accumulators"])
        return cls(accumulators, members["rows"], members.get("hides_rows", False))

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        accumulators = accumulator_digest(self.accumulators)
        return {"work": self.name, "accumulators": accumulators, "rows": self.rows}

    def describe(self, inputs: Inputs) -> Description:
        by_name = {field.name: field for field in inputs}
        parts = tuple(one.describe(by_name) for one in self.accumulators)
        return Description(lists=(Parts("aggregate", parts, named=False),))
