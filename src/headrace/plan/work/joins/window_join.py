"""Window join: rows of two streams match if their keys are equal and they lie in one window."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

from headrace.plan.columns import Field, OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description, column_parts
from headrace.plan.work.flat import fields_in, flat, row_digest
from headrace.plan.work.stores import FittingStores

How = Literal["inner", "left", "right", "full"]

_STORES: dict[WindowKind, FittingStores] = {
    "fixed": FittingStores(
        ("aar", "range", "memory", "rocksdb"),
        "rows of both sides are kept until their window closes (append, aligned read)",
    ),
    "session": FittingStores(
        ("aur", "memory", "rocksdb"),
        "rows of both sides are kept until their session closes (append, unaligned read)",
    ),
}


@dataclass(frozen=True)
class WindowJoin(Work):
    """Rows of two streams meet in a window; SIDE marks the stream of a row.

    `left` and `right` are the columns of each side, named after the inputs that carry them. Columns of the
    two sides share an input if their types are equal. The event time needs no input: its name is TIME.
    A row is as wide as its wider side.
    """

    name: ClassVar[str] = "window_join"
    noun: ClassVar[str] = "a join"
    phrase: ClassVar[str] = "a join"
    keeps_rows: ClassVar[bool] = True
    has_sides: ClassVar[bool] = True

    how: How
    left: tuple[Field, ...]
    right: tuple[Field, ...]

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        sides = (("l", self.left), ("r", self.right))
        return [
            OutputColumn(f"{side}{at}", f.type) for side, fields in sides for at, f in enumerate(fields)
        ]

    def side_columns(self) -> tuple[Inputs, ...]:
        return (self.left, self.right)

    def stores(self, window: WindowKind) -> FittingStores | None:
        return _STORES.get(window)

    def to_json(self) -> dict[str, Any]:
        return flat(join=asdict(self))

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        join = members["join"]
        return cls(join["how"], fields_in(join["left"]), fields_in(join["right"]))

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        return row_digest(inputs, join=True)

    def describe(self, inputs: Inputs) -> Description:
        """Columns that keep their names and types keep their inputs too."""
        sides = (column_parts("left column", self.left), column_parts("right column", self.right))
        return Description((("the join", self.how),), sides)

    def facts(self) -> tuple[tuple[str, str], ...]:
        sizes = f"{len(self.left)} columns of the left stream, {len(self.right)} of the right one"
        return (("join", f"{self.how}, {sizes}"),)
