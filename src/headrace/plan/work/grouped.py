"""Grouped: a function of the user receives the rows of each key and window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from headrace.plan.columns import GROUP, TIME, OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description, column_parts
from headrace.plan.work.flat import flat, row_digest
from headrace.plan.work.stores import FittingStores

_OBSERVED = (
    "the function has no mark of how it uses its rows: they begin in memory, and move to {} "
    "once they take half of their share of it"
)
_STORES: dict[WindowKind, FittingStores] = {
    "settled": FittingStores(
        ("aur",),
        "rows wait until the watermark has passed them, then those of an open window lie together by key",
    ),
    "fixed": FittingStores(("auto", "aar", "range", "memory", "rocksdb"), _OBSERVED.format("aar or range")),
    "session": FittingStores(("auto", "aur", "memory", "rocksdb"), _OBSERVED.format("aur")),
}


@dataclass(frozen=True)
class Grouped(Work):
    """The kept rows of each group, returned after GROUP, a number that changes with the group."""

    name: ClassVar[str] = "grouped"
    noun: ClassVar[str] = "a function over groups"
    phrase: ClassVar[str] = "a function that sees whole windows"
    keeps_rows: ClassVar[bool] = True
    returns_rows: ClassVar[bool] = True

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        head = [OutputColumn(GROUP, "int64"), OutputColumn(TIME, "timestamp")]
        return head + [OutputColumn(field.name, field.type) for field in inputs]

    def stores(self, window: WindowKind) -> FittingStores | None:
        return _STORES.get(window)

    def to_json(self) -> dict[str, Any]:
        return flat(grouped=True)

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        return cls()

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        return row_digest(inputs)

    def describe(self, inputs: Inputs) -> Description:
        return Description(lists=(column_parts("column", inputs),))
