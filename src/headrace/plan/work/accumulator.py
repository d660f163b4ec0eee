"""An accumulator: one running value per key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headrace.plan.columns import Field, OutputColumn
from headrace.plan.work.description import Part

Kind = Literal["count", "sum", "min", "max", "moments", "first", "last"]
Overflow = Literal["error", "wrap", "null"]

_WHOLE = frozenset({"int8", "int16", "int32", "int64", "date", "timestamp", "timestamp_ntz", "duration"})


@dataclass(frozen=True)
class Accumulator:
    """One running value per key.

    `input` is the name of an input field; None counts rows. `type` is the type of the stored value: the
    type of the input, but `int64` for count. For sum it is one of `int64`, `double`, `duration` and
    `decimal(38,s)`-like types; the JVM casts the input to it. `moments` stores (n, mean, m2) of a double.
    `first` and `last` order by event time, or by the input `by`, whose nulls do not take part. Of equal
    times, first keeps the smallest value and last the largest (null is the smallest), so that the result
    does not depend on arrival order.
    """

    kind: Kind
    input: str | None
    type: str
    overflow: Overflow = "error"
    by: str | None = None  # first and last: the input that orders; None: the event time

    def to_json(self) -> dict[str, Any]:
        """The members as JSON; those of operators without `by` are as before it existed."""
        members = asdict(self)
        if self.by is None:
            del members["by"]
        return members

    @property
    def can_combine(self) -> bool:
        """Whether values of several rows can be combined before the shuffle."""
        match self.kind:
            case "count":
                return True
            case "sum":
                return self.type in ("int64", "double")
            case "min" | "max":
                return self.type in _WHOLE  # Arrow and Spark do not agree on NaN
            case _:
                return False

    def describe(self, inputs: Mapping[str, Field]) -> Part:
        """The accumulator as the user wrote it: its call, and its type."""
        if self.input is None:
            argument, read = "*", ""
        else:
            field = inputs[self.input]
            argument, read = field.label or field.name, field.type
        stored = self.type if read in ("", self.type) else f"{self.type} of {read}"
        overflow = f", on overflow {self.overflow}" if self.kind == "sum" else ""
        if self.by is not None:
            argument += f" by {inputs[self.by].label or self.by}"
        return Part(f"{self.kind}({argument})", f"{stored}{overflow}")


def partial_name(index: int) -> str:
    """The column of a combined row that accumulator number `index` reads."""
    return f"p{index}"


def result_columns(index: int, accumulator: Accumulator) -> list[OutputColumn]:
    """The columns of the result of accumulator number `index`."""
    if accumulator.kind == "moments":
        return [OutputColumn(f"a{index}_{part}", "double") for part in ("n", "mean", "m2")]
    return [OutputColumn(f"a{index}", accumulator.type, nullable=accumulator.kind != "count")]
