"""A record on its way through the controller."""

from __future__ import annotations

from typing import Any

from headrace.execution.epochs import Epoch


class Record:
    """One call of user code for one key; `epoch` is set while the record is in flight."""

    __slots__ = ("epoch", "is_begun", "item", "key")

    def __init__(self, key: Any, item: Any = None, *, is_begun: bool = False) -> None:
        self.key, self.item = key, item
        self.is_begun = is_begun  # whether its source has started it already, and it waits
        self.epoch: Epoch | None = None
