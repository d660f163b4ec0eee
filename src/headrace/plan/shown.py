"""How the user sees an operator's columns: names, types, and the wire columns that each is made of.

The state host computes flat columns only; Spark's plan makes results of them. What it does is recorded with
the operator, so that state can be read later without the query: as a table with the user's own columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ShownKind = Literal[
    "column",
    "struct",
    "average",
    "var_samp",
    "var_pop",
    "stddev_samp",
    "stddev_pop",
    "estimate",
    "net_count",
    "net_sum",
    "net_average",
]


@dataclass(frozen=True)
class ShownColumn:
    """One column of results.

    `type` is its state type, empty for a struct. A struct that can be null names the wire column that is
    true where it is. An average is made of a sum and a count, a variance of (n, mean, m2), an estimate of
    the coupons that `buckets` buckets have given out. Net results, of changelogs, are made of signed sums:
    the count; or the total, the number of its values, and how many are NaN or infinite with either sign.
    """

    name: str
    kind: ShownKind
    type: str
    columns: tuple[str, ...]
    fields: tuple[ShownColumn, ...] = ()
    buckets: int = 0

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> ShownColumn:
        """The column that `dataclasses.asdict` wrote."""
        fields = tuple(cls.of(field) for field in written["fields"])
        buckets = int(written.get("buckets", 0))  # absent in records of before there were estimates
        return cls(
            written["name"], written["kind"], written["type"], tuple(written["columns"]), fields, buckets
        )

    def leaves(self) -> list[str]:
        """All wire columns that it is made of."""
        return [*self.columns, *(leaf for field in self.fields for leaf in field.leaves())]
