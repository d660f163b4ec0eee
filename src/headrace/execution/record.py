"""A record on its way through the controller."""

from __future__ import annotations

from typing import Any

from headrace.execution.epochs import Epoch


class Record:
    """One call of user code for one key; `epoch` is set while the record is in flight."""

    __slots__ = ("epoch", "item", "key")

    def __init__(self, key: Any, item: Any = None) -> None:
        self.key, self.item = key, item
        self.epoch: Epoch | None = None
