"""Cache policies: the mark that a row gets when it is used or expected; the smallest mark leaves first.

    timestamp   the event time of the last use, or of the use that a hint expects
    lru         the block of rows in which the row was last used
    clock       the block in which the row came in, and whether it was used since

A mark has 32 bits and is compared as a serial number: half of their range lies behind the newest mark, half
before it. Rows of one block have one mark, so their order among each other is not defined. Where rows
carry no event time, the number of the block stands in for it.
A row that a hint expects is *pinned* by its mark alone: the pin ends where only pinned rows are left.
"""

from __future__ import annotations

from typing import Literal, Protocol

PolicyName = Literal["timestamp", "lru", "clock"]
POLICIES: tuple[PolicyName, ...] = ("timestamp", "lru", "clock")

TIME_UNIT_US = 1 << 14  # about 16 ms: the marks of two years differ


class Policy(Protocol):
    """How rows are marked."""

    @property
    def second_chance(self) -> bool:
        """Whether a used row keeps its mark and is passed over once."""

    def used(self, block: int, time_us: int | None) -> int:
        """The mark of rows that are used in this block, with this event time."""

    def expected(self, block: int, time_us: int | None) -> int | None:
        """The mark of rows that a hint expects; None: hints change no mark."""


class TimestampAware:
    """One order for used and for expected rows: event time."""

    second_chance = False

    def used(self, block: int, time_us: int | None) -> int:
        return block if time_us is None else time_us // TIME_UNIT_US

    def expected(self, block: int, time_us: int | None) -> int | None:
        """Without event time the row is expected in the next block."""
        return block + 1 if time_us is None else time_us // TIME_UNIT_US


class LeastRecentlyUsed:
    """The order of the last use."""

    second_chance = False

    def used(self, block: int, time_us: int | None) -> int:
        return block

    def expected(self, block: int, time_us: int | None) -> int | None:
        return None


class Clock(LeastRecentlyUsed):
    """The order of arrival; a row that was used since is passed over once and queues anew."""

    second_chance = True


def policy_of(name: PolicyName) -> Policy:
    """The policy of a setting."""
    policies: dict[PolicyName, Policy] = {
        "timestamp": TimestampAware(),
        "lru": LeastRecentlyUsed(),
        "clock": Clock(),
    }
    return policies[name]
