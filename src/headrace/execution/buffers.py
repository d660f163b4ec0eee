"""Buffers of the controller: records that wait for their key, and requests that wait for their batch.

Threads: one task's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class BlockingBuffer(Generic[Item]):
    """Records whose key is occupied, in the order of their arrival per key."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Item]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, key: Hashable, item: Item) -> None:
        self._waiting.setdefault(key, deque()).append(item)
        self._count += 1

    def pop(self, key: Hashable) -> Item | None:
        """The oldest item of a key; None if nothing waits for it."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return None
        item = waiting.popleft()
        self._count -= 1
        if not waiting:
            del self._waiting[key]
        return item

    def clear(self) -> None:
        self._waiting, self._count = {}, 0


class ActiveBuffer(Generic[Item]):
    """Requests that are sent together."""

    def __init__(self, size: int) -> None:
        self._size, self._items = size, list[Item]()

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: Item) -> bool:
        """Adds a request; returns whether the buffer is full."""
        self._items.append(item)
        return len(self._items) >= self._size

    def take(self) -> list[Item]:
        """All requests, in the order of their arrival; the buffer is empty afterwards."""
        items, self._items = self._items, []
        return items
