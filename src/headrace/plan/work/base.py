"""The contract of an operator's work: what is computed from the rows of a key.

A kind of work is a frozen dataclass of plain values that derives from `Work`. It answers every question
that differs between operators: columns, stores, digest, JSON, and changes at a restart. Nothing outside
tests its class, except `operators.registry`, which maps the class to the code that runs it.
`inputs` are the operator's input fields, in the order of the wire.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar, Self

from headrace.plan.columns import SIDE, Field, OutputColumn, wire_columns
from headrace.plan.window import WindowKind
from headrace.plan.work.accumulator import Accumulator
from headrace.plan.work.description import Description
from headrace.plan.work.stores import FittingStores

Inputs = tuple[Field, ...]
Columns = list[tuple[str, str]]  # names and types


class Work(ABC):
    """What one operator computes."""

    name: ClassVar[str]  # in JSON and in the registry
    noun: ClassVar[str]  # for users: "it was a join, is now an aggregate"
    phrase: ClassVar[str]  # for users: "the rmw store cannot hold the state of <phrase>"

    keeps_rows: ClassVar[bool] = False  # rows are stored as they arrive; else they are folded
    has_sides: ClassVar[bool] = False  # rows of two streams, marked by SIDE
    returns_rows: ClassVar[bool] = False  # results are the kept rows of each group, numbered by GROUP
    is_interactive: ClassVar[bool] = False  # the worker reads and writes state while it runs user code
    adds_up: ClassVar[bool] = False  # state rows of one group from several epochs merge into its result

    # ── rows ─────────────────────────────────────────────────────────────────────────────────

    @property
    def accumulators(self) -> tuple[Accumulator, ...]:
        """The running values of a state row."""
        return ()

    def mark_columns(self) -> Columns:
        """Columns that an input row carries ahead of its keys."""
        return [(SIDE, "int8")] if self.has_sides else []

    def input_columns(self, inputs: Inputs) -> Columns:
        """Columns that an input row carries behind its keys."""
        return wire_columns(inputs)

    @abstractmethod
    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        """Columns of a result behind its keys and window bounds."""

    def side_columns(self) -> tuple[Inputs, ...]:
        """The user's columns of each side, named after the inputs that carry them; none without sides."""
        return ()

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    @property
    def closes_by_watermark(self) -> bool:
        """Whether rows come out or are dropped when the watermark passes them, without any window."""
        return False

    @property
    def hold_us(self) -> int | None:
        """How far results lie behind the watermark at most, beside the window; None: without a limit."""
        return 0

    def hold_of(self, columns: frozenset[str]) -> int | None:
        """The hold of a time that is computed from these columns of the result."""
        return self.hold_us

    # ── combined before the shuffle ──────────────────────────────────────────────────────────

    @property
    def can_combine(self) -> bool:
        """Whether rows of one group can be combined before the shuffle."""
        return False

    @property
    def combined(self) -> bool:
        """Whether rows are combined before the shuffle."""
        return False

    def combining(self) -> Work:
        """The same work over combined rows; only where `can_combine`."""
        return self

    # ── stores ───────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def stores(self, window: WindowKind) -> FittingStores | None:
        """The stores that can hold the state; None if the work is impossible over such windows."""

    # ── identity ─────────────────────────────────────────────────────────────────────────────

    def to_json(self) -> dict[str, Any]:
        """The members that this work adds to the operator's JSON."""
        return {"work": {"name": self.name, **asdict(self)}}  # type: ignore[call-overload]

    @classmethod
    @abstractmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        """The work that `to_json` wrote; `members` are those of "work", without the name."""

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        """The members that decide how state rows look."""
        return {**self.to_json(), "inputs": [field.type for field in inputs]}

    @abstractmethod
    def describe(self, inputs: Inputs) -> Description:
        """The parts that must be equal at a restart, in the user's words."""

    def evolved(self, before: Work) -> Work:
        """This work over the state of `before`, which `describe` allows; raises for what it cannot read."""
        return self

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Labels and texts that `hr.explain` prints about the work."""
        return ()
