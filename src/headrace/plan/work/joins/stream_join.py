"""Stream join: rows of two streams match if their keys are equal and their times are near enough.

With `lower_us = a` and `upper_us = b`, rows l and r match if `l.time - r.time` lies in `[a, b]`. Without
bounds every two rows of equal keys match. `W` below is the operator's watermark: rows to come are later.

With `until`, an input of the right side, a right row matches left rows from its own time until that time.
With `generation`, an input too, the right side is a table: only rows of the newest generation match.
With `where`, only pairs match for which that condition holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

from headrace.plan.columns import LEFT, RIGHT, OutputColumn
from headrace.plan.window import WindowKind
from headrace.plan.work.base import Inputs, Work
from headrace.plan.work.description import Description, column_parts
from headrace.plan.work.flat import fields_in
from headrace.plan.work.joins.condition import INPUTS, Term, spelled, term_of
from headrace.plan.work.stores import FittingStores

Matching = Literal["inner", "left", "right", "full", "semi", "anti"]

# When a row meets its partners: whenever either comes (both), or when the left row comes (arrival), or when
# the watermark passes the left row (settled). The latter two look back at the right stream.
Meets = Literal["both", "arrival", "settled"]

FAR_US = 1 << 61  # no two event times are further apart

_KEPT_ALONE: dict[int, tuple[Matching, ...]] = {LEFT: ("left", "full", "anti"), RIGHT: ("right", "full")}


@dataclass(frozen=True)
class StreamJoin(Work):
    """Rows of two streams; SIDE marks the stream of a row.

    `left` and `right` are the columns of each side, as in `WindowJoin`. Rows are stored in buckets of
    `bucket_us`, or in one bucket if that is 0.
    """

    name: ClassVar[str] = "stream_join"
    noun: ClassVar[str] = "a join"
    phrase: ClassVar[str] = "a join"
    keeps_rows: ClassVar[bool] = True
    has_sides: ClassVar[bool] = True

    how: Matching
    left: Inputs
    right: Inputs
    lower_us: int | None = None
    upper_us: int | None = None
    bucket_us: int = 0
    meets: Meets = "both"
    until: str | None = None
    generation: str | None = None
    where: Term | None = None

    # ── rows ─────────────────────────────────────────────────────────────────────────────────

    @property
    def stored_by(self) -> str | None:
        """The input of a right row by which it is stored, instead of its event time."""
        return self.until if self.generation is None else self.generation

    @property
    def returns_right(self) -> bool:
        """Whether results have columns of the right side."""
        return self.how not in ("semi", "anti")

    def output_columns(self, inputs: Inputs) -> list[OutputColumn]:
        sides = (("l", self.left), ("r", self.right if self.returns_right else ()))
        return [
            OutputColumn(f"{side}{at}", f.type) for side, fields in sides for at, f in enumerate(fields)
        ]

    def side_columns(self) -> tuple[Inputs, ...]:
        return (self.left, self.right)

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def keeps_alone(self, side: int) -> bool:
        """Whether rows of the side without a partner come out."""
        return self.how in _KEPT_ALONE[side]

    def partner_us(self, side: int) -> tuple[int, int] | None:
        """The time of a partner less that of a row of the side: least and most; None without bounds."""
        if self.until is not None:
            return (-FAR_US, 0) if side == LEFT else (0, FAR_US)
        if self.lower_us is None or self.upper_us is None:
            return None
        return (-self.upper_us, -self.lower_us) if side == LEFT else (self.lower_us, self.upper_us)

    def expires_us(self, side: int) -> int | None:
        """A row has no later partner once W reaches its stored time plus this; None: it may have one.

        The stored time of a right row with `until` is that time, else it is the event time.
        """
        if self.until is not None:
            return 0
        partner = self.partner_us(side)
        return None if partner is None else partner[1]

    def is_stored(self, side: int) -> bool:
        """Whether rows of the side outlive their epoch."""
        return side == RIGHT or self.meets != "arrival"

    def keeps_us(self, side: int) -> int | None:
        """A row is stored until W reaches its stored time plus this; None: for good.

        Rows of the other side that expire, or match again, are compared with all their partners. So their
        partners are stored for as long.
        """
        expires = self.expires_us(side)
        if self.until is not None:
            return expires
        if expires is None or self.lower_us is None or self.upper_us is None:
            return None
        other = RIGHT if side == LEFT else LEFT
        is_compared = self.keeps_alone(other) or (self.how == "semi" and side == RIGHT)
        if self.meets != "both":
            is_compared = self.meets == "settled" and side == RIGHT
        return max(expires, self.upper_us - self.lower_us) if is_compared else expires

    @property
    def closes_by_watermark(self) -> bool:
        return self.expires_us(LEFT) is not None

    @property
    def hold_us(self) -> int | None:
        if self.generation is not None:
            return 0
        if self.until is not None:
            return None
        bounds = [self.expires_us(LEFT), self.expires_us(RIGHT)]
        known = [bound for bound in bounds if bound is not None]
        return max(0, *known) if len(known) == len(bounds) else None

    def hold_of(self, columns: frozenset[str]) -> int | None:
        """With `until`, pairs have a left time, and an end, later than the watermark before."""
        ends = {f"r{at}" for at, field in enumerate(self.right) if field.name == self.until}
        lefts = {f"l{at}" for at in range(len(self.left))}
        is_late = self.until is None or not columns or not columns <= lefts | ends
        return self.hold_us if is_late else 0

    # ── stores ───────────────────────────────────────────────────────────────────────────────

    def stores(self, window: WindowKind) -> FittingStores | None:
        if window != "none":
            return None
        return FittingStores(
            ("aar", "memory"), "rows of both sides are appended and read by key (append, read by hash)"
        )

    # ── identity ─────────────────────────────────────────────────────────────────────────────

    def to_json(self) -> dict[str, Any]:
        """Members that are not used are left out."""
        members = asdict(self)
        if self.meets == "both":
            del members["meets"]
        for name in ("until", "generation", "where"):
            if members[name] is None:
                del members[name]
        return {"work": {"name": self.name, **members}}

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Self:
        sides: dict[str, Any] = {side: fields_in(members.pop(side)) for side in ("left", "right")}
        where = {"where": term_of(members.pop("where"))} if "where" in members else {}
        return cls(**members, **sides, **where)

    def digest(self, inputs: Inputs) -> dict[str, Any]:
        """Times decide which bucket a row is in, and how long it is stored."""
        types = [field.type for field in inputs]
        bounds = (self.lower_us, self.upper_us, self.bucket_us)
        meets = {} if self.meets == "both" else {"meets": self.meets}
        by = {"until": self.until, "generation": self.generation, "where": self.where}
        named = {name: value for name, value in by.items() if value is not None}
        return {"work": self.name, "how": self.how, "bounds": bounds, "inputs": types, **meets, **named}

    def describe(self, inputs: Inputs) -> Description:
        sides = (column_parts("left column", self.left), column_parts("right column", self.right))
        interval = (
            ("the interval", self._interval),
            ("the width of its buckets", f"{self.bucket_us / 1e6:g} s"),
        )
        traits = (("the join", self.how), *interval, ("its moment", self.meets))
        return Description((*traits, ("its condition", self._condition(inputs))), sides)

    def _condition(self, inputs: Inputs) -> str:
        """The condition over both streams, in the user's words."""
        if self.where is None:
            return "none"
        labels = {(side, one.name): one.label or one.name for one in inputs for side in INPUTS}
        for side, columns in zip(INPUTS, self.side_columns(), strict=True):
            labels |= {(side, one.name): one.label or one.name for one in columns}
        return spelled(self.where, labels)

    @property
    def _interval(self) -> str:
        if self.until is not None:
            return f"until {next((one.label for one in self.right if one.name == self.until), self.until)}"
        if self.generation is not None:
            return "the newest generation"
        if self.lower_us is None or self.upper_us is None:
            return "unbounded"
        return f"{self.lower_us / 1e6:g} s to {self.upper_us / 1e6:g} s"

    def facts(self) -> tuple[tuple[str, str], ...]:
        sizes = f"{len(self.left)} columns of the left stream, {len(self.right)} of the right one"
        where = () if self.where is None else (("condition", self._condition(())),)
        return (("join", f"{self.how}, {sizes}"), ("interval", self._interval), *where)
