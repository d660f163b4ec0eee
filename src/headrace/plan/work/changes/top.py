"""Top-N: the first rows of each key in an order, with their ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

from headrace.plan.columns import OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.accumulator import Accumulator
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description, column_parts
from headrace.plan.work.stores import FittingStores

Ranking = Literal["row_number", "rank", "dense_rank"]
RANK = "__rank"


@dataclass(frozen=True)
class Order:
    """An input that orders rows."""

    input: str
    descending: bool = True
    nulls_first: bool = False


@dataclass(frozen=True)
class Top(Work):
    """Rows whose rank is at most `n`. `sign` is the input with the sign of a change, over a changelog."""

    name: ClassVar[str] = "top"
    noun: ClassVar[str] = "a top-N"
    phrase: ClassVar[str] = "a top-N"

    n: int
    order: tuple[Order, ...]
    ranking: Ranking = "row_number"
    ranked: bool = False  # whether the rank belongs to a result
    sign: str | None = None

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The state row holds the rows of its key as one value; the store replaces it."""
        return (Accumulator("max", "rows", "binary"),)

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        columns = [OutputColumn(field.name, field.type) for field in inputs]
        return [*columns, OutputColumn(RANK, "int32", nullable=False)]

    def stores(self, window: WindowKind) -> FittingStores | None:
        if window != "none":
            return None
        reason = "the rows of a key are one value, read and written together (point update)"
        return FittingStores(("rmw", "memory"), reason)

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        order = tuple(Order(**one) for one in members["order"])
        return cls(**{**members, "order": order})

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        order = [asdict(one) for one in self.order]
        kept = [field.type for field in inputs]
        return {"work": self.name, "n": self.n, "order": order, "ranking": self.ranking, "kept": kept}

    def describe(self, inputs: Inputs) -> Description:
        labels = {field.name: field.label or field.name for field in inputs}
        order = ", ".join(f"{labels[one.input]} {'down' if one.descending else 'up'}" for one in self.order)
        traits = (("n", str(self.n)), ("the order", order), ("the ranking", self.ranking))
        return Description(traits, (column_parts("column", inputs),))

    def facts(self) -> tuple[tuple[str, str], ...]:
        return (("top", f"{self.n} rows of each key by {self.ranking}"),)
