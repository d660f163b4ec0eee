"""Key accounting: at most one record per key runs at a time.

Invariants: a key has one holder, or none. Only the holder releases it.
Threads: one task's thread.
"""

from __future__ import annotations

from collections.abc import Hashable


class NotHolder(Exception):
    """A record released a key that it does not occupy: a defect of the caller."""


class KeyAccounting:
    """The holder of each occupied key."""

    def __init__(self) -> None:
        self._holders: dict[Hashable, object] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def occupy(self, key: Hashable, record: object) -> bool:
        """Whether the record holds the key now; False if another record does."""
        return self._holders.setdefault(key, record) is record

    def release(self, key: Hashable, record: object) -> None:
        """Frees the key; raises if the record is not its holder."""
        if self._holders.get(key) is not record:
            raise NotHolder(f"key {key!r} is not occupied by this record")
        del self._holders[key]

    def is_free(self, key: Hashable) -> bool:
        return key not in self._holders
