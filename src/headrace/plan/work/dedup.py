"""Dedup: of the rows of a key, the first passes, or every row that is newer than all before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from headrace.plan.columns import TIME, OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.accumulator import Accumulator
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description, column_parts
from headrace.plan.work.stores import FittingStores

Keep = Literal["first", "last"]


@dataclass(frozen=True)
class Dedup(Work):
    """The time of the row that counts, per key; a key expires `ttl_us` after it, or never if that is 0."""

    name: ClassVar[str] = "dedup"
    noun: ClassVar[str] = "a dedup"
    phrase: ClassVar[str] = "a dedup"

    keep: Keep = "first"
    ttl_us: int = 0

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The state row holds the time; the store replaces it."""
        return (Accumulator("min", TIME, "timestamp"),)

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        return [OutputColumn(field.name, field.type) for field in inputs]

    def stores(self, window: WindowKind) -> FittingStores | None:
        if window == "session":
            return None
        return FittingStores(("rmw",), "each row reads and writes one state row of its key (point update)")

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        return cls(members["keep"], members["ttl_us"])

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        """State rows hold keys and times only, so columns may change between runs."""
        return {"work": self.name, "keep": self.keep, "ttl_us": self.ttl_us}

    def describe(self, inputs: Inputs) -> Description:
        traits = (("the row to keep", self.keep), ("the time to live", f"{self.ttl_us / 1e6:g} s"))
        return Description(traits, (column_parts("column", ()),))

    def facts(self) -> tuple[tuple[str, str], ...]:
        bound = (
            f"a key expires {self.ttl_us / 1e6:g} s after its row" if self.ttl_us else "keys never expire"
        )
        return (("dedup", f"keeps the {self.keep} row; {bound}"),)
