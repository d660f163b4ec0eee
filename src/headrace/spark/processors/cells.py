"""Cells of the current key beside its header: chunks of long lists and buckets of large maps."""

from __future__ import annotations

from typing import Protocol

HEADER = 0
_INDEX_BITS = 32


def cell_number(variable: int, index: int) -> int:
    """The cell of a chunk or a bucket of a variable; the header is cell 0."""
    return (variable + 1) << _INDEX_BITS | index


class KeyCells(Protocol):
    """Reads and writes cells of the current key."""

    def read(self, numbers: list[int]) -> list[bytes | None]:
        """The values of cells, null where there is none; own writes are visible."""

    def write(self, number: int, value: bytes | None) -> None:
        """Replaces a cell; None deletes it."""
