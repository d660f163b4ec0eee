"""The state of a processor as plain values, for comparisons: one value, a list and a map."""

from __future__ import annotations

from typing import Any


class Model:
    """Applies the change of a row, which is in its column `what`."""

    def __init__(self) -> None:
        self.last: Any = None
        self.items: list[int] = []
        self.entries: dict[int, int] = {}

    def change(self, row: dict[str, Any]) -> None:
        match row["what"]:
            case "value":
                self.last = (row["v"],)
            case "append":
                self.items.append(row["v"])
            case "put":
                self.items = [row["v"], row["k"]]
            case "update":
                self.entries[row["k"]] = row["v"]
            case "remove":
                self.entries.pop(row["k"], None)
            case "clear value":
                self.last = None
            case "clear list":
                self.items = []
            case "clear map":
                self.entries = {}
            case _:
                self.last, self.items, self.entries = None, [], {}
