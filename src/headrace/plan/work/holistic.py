"""Holistic results: rows are kept until their window closes, then each group is computed as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

from headrace.plan.columns import Field, OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.accumulator import Accumulator
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description, Part, Parts
from headrace.plan.work.flat import accumulators_in, flat, row_digest
from headrace.plan.work.fold import accumulator_columns
from headrace.plan.work.stores import FittingStores

HolisticKind = Literal["percentile", "approx_percentile", "mode", "top", "list", "set"]

_STORES: dict[WindowKind, FittingStores] = {
    "settled": FittingStores(
        ("aur",),
        "rows wait until the watermark has passed them, then those of an open window lie together by key",
    ),
    "fixed": FittingStores(
        ("aar", "range", "memory", "rocksdb"),
        "rows are kept until their window closes, and windows close together (append, aligned read)",
    ),
    "session": FittingStores(
        ("aur", "memory", "rocksdb"),
        "rows are kept until their session closes, each at its own time (append, unaligned read)",
    ),
}


@dataclass(frozen=True)
class HolisticResult:
    """A result that needs all values of a group at once.

    `type` is the type of one value. `numbers` are the parameters: the percentages of a percentile (for an
    approximate one, the accuracy is last), or the k of top. If `many`, percentiles are returned as a list.
    """

    kind: HolisticKind
    input: str
    type: str
    numbers: tuple[float, ...] = ()
    many: bool = False
    by: str | None = None  # top: the input that orders; None orders by the values themselves
    ties: bool = False  # top: also return rows that equal the last one in the ordering input

    @property
    def listed(self) -> bool:
        return self.many or self.kind in ("top", "list", "set")

    def column(self, index: int) -> OutputColumn:
        """The column of result number `index`."""
        of_one = "double" if self.kind == "percentile" else self.type
        return OutputColumn(f"h{index}", of_one, self.listed)

    def describe(self, inputs: Mapping[str, Field]) -> Part:
        fields = [inputs[name] for name in (self.input, self.by) if name is not None]
        arguments = [field.label or field.name for field in fields]
        arguments += [f"{number:g}" for number in self.numbers]
        return Part(f"{self.kind}({', '.join(arguments)})", self.type)


@dataclass(frozen=True)
class Holistic(Work):
    """Holistic results beside plain accumulators, computed from the kept rows of each group."""

    name: ClassVar[str] = "holistic"
    noun: ClassVar[str] = "an aggregate"
    phrase: ClassVar[str] = "an operator that keeps its rows until their window closes"
    keeps_rows: ClassVar[bool] = True

    results: tuple[HolisticResult, ...]
    accumulators: tuple[Accumulator, ...] = ()

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        whole = [result.column(at) for at, result in enumerate(self.results)]
        return accumulator_columns(self.accumulators) + whole

    def stores(self, window: WindowKind) -> FittingStores | None:
        return _STORES.get(window)

    def to_json(self) -> dict[str, Any]:
        if not self.results:  # the flat form would be that of a fold
            return {
                "work": {"name": self.name, "accumulators": [one.to_json() for one in self.accumulators]}
            }
        return flat(self.accumulators, holistics=[asdict(result) for result in self.results])

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        written = members.get("holistics", ())
        results = (HolisticResult(**{**r, "numbers": tuple(r["numbers"])}) for r in written)
        return cls(tuple(results), accumulators_in(members))

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        return row_digest(inputs, self.accumulators)

    def describe(self, inputs: Inputs) -> Description:
        by_name = {field.name: field for field in inputs}
        parts = [one.describe(by_name) for one in self.accumulators]
        parts += [one.describe(by_name) for one in self.results]
        return Description(lists=(Parts("aggregate", tuple(parts), named=False),))
