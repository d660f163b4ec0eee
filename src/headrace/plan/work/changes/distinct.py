"""Distinct: a fold some of whose inputs count once per group, window and value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from headrace.plan.columns import OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.accumulator import Accumulator
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.changes.retracting import Retracting
from headrace.plan.work.description import Description
from headrace.plan.work.fold import Fold
from headrace.plan.work.stores import FittingStores

_INNER: dict[str, type[Fold | Retracting]] = {Fold.name: Fold, Retracting.name: Retracting}


@dataclass(frozen=True)
class Distinct(Work):
    """The work over rows in which each value of the inputs `columns` is null but for its first time."""

    name: ClassVar[str] = "count_distinct"
    noun: ClassVar[str] = "an aggregate of distinct values"
    phrase: ClassVar[str] = "an aggregate of distinct values"

    inner: Fold | Retracting
    columns: tuple[str, ...]

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        return self.inner.accumulators

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        return self.inner.output_columns(inputs)

    def stores(self, window: WindowKind) -> FittingStores | None:
        if window == "session":
            return None
        reason = "each row changes one state row of its key, and looks up its values (point update)"
        return FittingStores(("rmw", "memory"), reason)

    def to_json(self) -> dict[str, Any]:
        written = {"of": self.inner.name, "inner": self.inner.to_json(), "columns": list(self.columns)}
        return {"work": {"name": self.name, **written}}

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        kind, written = _INNER[members["of"]], members["inner"]
        inner = kind.from_json(written.get("work", written))
        return cls(inner, tuple(members["columns"]))

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        types = {field.name: field.type for field in inputs}
        kept = [types[name] for name in self.columns]
        return {"work": self.name, "inner": self.inner.digest(inputs), "columns": kept}

    def describe(self, inputs: Inputs) -> Description:
        labels = {field.name: field.label or field.name for field in inputs}
        distinct = ", ".join(labels[name] for name in self.columns)
        own = self.inner.describe(inputs)
        return Description((("distinct values", distinct), *own.traits), own.lists)
