"""The memory that one store may take: a share of the host's limit, or a part of such a share.

A share may change between two calls, so it is read when it is needed and never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Share(Protocol):
    """A limit on memory."""

    @property
    def limit_bytes(self) -> int:
        """The most memory that its owner may take now."""


@dataclass(frozen=True)
class Part:
    """A fraction of a share."""

    numerator: int
    denominator: int

    def of(self, share: Share) -> int:
        """The bytes of this part."""
        return share.limit_bytes * self.numerator // self.denominator


@dataclass(frozen=True)
class FixedShare:
    """A share that never changes."""

    limit_bytes: int


UNLIMITED = FixedShare(1 << 62)


@dataclass(frozen=True)
class PartialShare:
    """A part of another share, for a store inside another store."""

    whole: Share
    part: Part

    @property
    def limit_bytes(self) -> int:
        return self.part.of(self.whole)


@dataclass
class GrowingShare:
    """Unlimited until it is bounded by another share."""

    whole: Share
    bounded: bool

    @property
    def limit_bytes(self) -> int:
        return self.whole.limit_bytes if self.bounded else UNLIMITED.limit_bytes
