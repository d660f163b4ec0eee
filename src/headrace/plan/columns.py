"""Columns on the wire: their reserved names, fields of the input, and columns of the result."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.types import arrow_type

HASH, TIME = "__hash", "__time"
WINDOW_START, WINDOW_END = "__window_start", "__window_end"
SIDE, GROUP = "__side", "__group"
BOUNDS = "__bounds"  # of a window that a function gave, before they are keys: a struct (start, end)
ROWS = "__rows"  # the number of input rows that a combined row stands for
KEYLESS_HASH = 42  # the hash of a key without columns: the seed of xxhash64
KIND = "__kind"  # of a change; values are positions in CHANGE_KINDS
CHANGE_KINDS = ("insert", "update_before", "update_after", "delete")
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
LEFT, RIGHT = 0, 1  # values of SIDE
ALONE = 2  # added to SIDE when a key is null: the row matches no other row


@dataclass(frozen=True)
class Field:
    """A column on the wire (`name`, such as `k0`) and the user's name for it (`label`)."""

    name: str
    type: str
    label: str = ""


@dataclass(frozen=True)
class OutputColumn:
    """A column of the result: `type` is the type of one value, `listed` makes it a list of such values."""

    name: str
    type: str
    listed: bool = False
    nullable: bool = True

    @property
    def arrow(self) -> pa.Field:
        of_one = arrow_type(self.type)
        return pa.field(self.name, pa.list_(of_one) if self.listed else of_one)


def own_bounds(keys: tuple[Field, ...]) -> tuple[str, str] | None:
    """The keys that are the bounds of a window that a function gave."""
    by_label = {field.label: field.name for field in keys}
    start, end = by_label.get(f"{BOUNDS}.start"), by_label.get(f"{BOUNDS}.end")
    return None if start is None or end is None else (start, end)


def wire_columns(fields: tuple[Field, ...]) -> list[tuple[str, str]]:
    """Names and types of fields."""
    return [(field.name, field.type) for field in fields]
