"""RocksDB's table files as the host sees them: names and sizes in a manifest, without RocksDB itself."""

from __future__ import annotations

import zlib
from pathlib import Path

from headrace.format.segment import SectionEntry
from headrace.store.segment import Segment

SST = "sst"  # their kind in a manifest


class SstFile(Segment):
    """A file of RocksDB among the files of a version: the host needs no more than its name and size."""

    def __init__(self, path: str, label: str, size: int, checksum: int) -> None:
        self.path, self.label, self.size, self.checksum = path, label, size, checksum
        self.kind, self.width = SST, 0
        self.sections = {0: SectionEntry(0, 0, 0, 0, 0, 0, 0, 0)}

    def release(self, number: int) -> None:
        """It has nothing in memory."""

    def close(self) -> None:
        """It has nothing open."""


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    value = 0
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            value = zlib.crc32(data, value)
    return value
