"""Which stores can hold the state of a kind of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StoreName = Literal["auto", "rmw", "aar", "aur", "range", "memory", "rocksdb"]


@dataclass(frozen=True)
class FittingStores:
    """The stores that can hold the state, the best first, and why the first is the best."""

    names: tuple[StoreName, ...]
    reason: str

    @property
    def named(self) -> tuple[StoreName, ...]:
        """The stores that a user can name beside auto."""
        return tuple(name for name in self.names if name != "auto")
