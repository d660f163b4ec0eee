"""Cells: the state of a user's processor, read and written by key from Spark's worker.

A cell is a value of bytes under (key, number). Cell 0 of a key is its header; larger collections use
further cells. A reminder is a key under a time: the worker requests the keys whose time has come.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from headrace.errors import OperatorChanged
from headrace.plan.columns import HASH, Field, OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description
from headrace.plan.work.evolution import schema_changes
from headrace.plan.work.stores import FittingStores

DELETED = "deleted: "
CELL, VALUE = "__cell", "__value"
CELL_FIELD, VALUE_FIELD = Field(CELL, "int64"), Field(VALUE, "binary")


@dataclass(frozen=True)
class Variable:
    """One state variable of a processor: its kind, and its schemas as Spark's JSON."""

    name: str
    kind: str  # value, list, map, or deleted
    schema: str
    key_schema: str = ""  # of a map
    ttl_ms: int = 0  # 0: values do not expire


@dataclass(frozen=True)
class Cells(Work):
    """The variables of a processor, in the order in which their state is stored."""

    name: ClassVar[str] = "cells"
    noun: ClassVar[str] = "a processor"
    phrase: ClassVar[str] = "a processor of the user"
    is_interactive: ClassVar[bool] = True

    variables: tuple[Variable, ...] = ()
    time_mode: str = "none"
    deleted: tuple[str, ...] = ()  # names of variables whose state goes

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        return [OutputColumn(CELL, "int64"), OutputColumn(VALUE, "binary"), OutputColumn(HASH, "int64")]

    def stores(self, window: WindowKind) -> FittingStores | None:
        return FittingStores(("rmw",), "the state of a key is read and written as a whole (point update)")

    def to_json(self) -> dict[str, Any]:
        members = asdict(self)
        if not self.deleted:
            del members["deleted"]
        return {"work": {"name": self.name, **members}}

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        variables = tuple(Variable(**one) for one in members["variables"])
        return cls(variables, members["time_mode"], tuple(members.get("deleted", ())))

    def evolved(self, before: Work) -> Work:
        """The variables in the order of their state: those of the run before, then new ones."""
        assert isinstance(before, Cells)
        declared = {one.name: one for one in self.variables}
        kept = [self._over(one, declared.pop(one.name, None)) for one in before.variables]
        return replace(self, variables=(*kept, *declared.values()), deleted=())

    def _over(self, before: Variable, now: Variable | None) -> Variable:
        """A variable over its state of the run before; a deleted one leaves its place empty for ever."""
        if now is None:
            is_deleted = before.name in self.deleted
            return replace(before, name=f"{DELETED}{before.name}", kind="deleted") if is_deleted else before
        changed = schema_changes(before.schema, now.schema)
        if before.kind != now.kind:
            changed = [f"it was a {before.kind} state, is now a {now.kind} state"]
        if before.key_schema and now.key_schema and before.key_schema != now.key_schema:
            changed.append("its map keys have another schema")
        if bool(before.ttl_ms) != bool(now.ttl_ms):
            changed.append("a time to live was added or removed")
        if changed:
            raise OperatorChanged(
                f"state variable {now.name} cannot be read as declared: {'; '.join(changed)}",
                hint="add nullable fields at the end and widen types only, or declare a variable of a new "
                "name and delete this one with deleteIfExists",
            )
        return now

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        """Variables may be added between runs, so they are not part of the digest."""
        return {"work": self.name, "time_mode": self.time_mode}

    def describe(self, inputs: Inputs) -> Description:
        return Description((("the time mode", self.time_mode),))

    def facts(self) -> tuple[tuple[str, str], ...]:
        return (("state", ", ".join(f"{one.name} ({one.kind})" for one in self.variables) or "none"),)
