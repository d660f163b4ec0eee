"""RocksDB's table files among the files of a version: names and sizes, without RocksDB itself."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NoReturn

from headrace.files.logical import LogicalFile
from headrace.format.segment import SectionEntry
from headrace.row.arrays import I64, U64
from headrace.row.run import Run
from headrace.store.segments.reader import Answer, Prepared

SST = "sst"  # their kind in a manifest
CopyBytes = Callable[[str, Path, bool], None]  # file id, target, whether a hard link will do


class SstFile:
    """A file of RocksDB as a `Segment` whose rows only RocksDB can read."""

    kind, width, rows, last, memory_bytes = SST, 0, 0, 0, 0

    def __init__(self, file: LogicalFile, label: str, copy: CopyBytes) -> None:
        self.file, self.label, self.size = file, label, file.size
        self.sections = {0: SectionEntry(0, 0, 0, 0, 0, 0, 0, 0)}
        self._copy = copy

    def copy_to(self, target: Path, *, link: bool) -> None:
        """Puts the file's bytes at `target`; a link shares them with all other copies."""
        self._copy(self.file.id, target, link)

    def answer(self, number: int, answer: Answer) -> None:
        self._refuse()

    def scan(self, number: int, chunk_rows: int) -> Iterator[Run]:
        self._refuse()

    def count_range(self, number: int, low: int, high: int) -> int:
        self._refuse()

    def scan_range(self, number: int, low: int, high: int) -> Run:
        self._refuse()

    def rows_of(self, number: int, hashes: U64, turns: I64 | None = None) -> Run:
        self._refuse()

    def resident_share(self) -> float:
        self._refuse()

    is_far = False

    def prepare(self, number: int, hashes: U64) -> Future[Prepared]:
        self._refuse()

    def release(self, number: int) -> None:
        """It has nothing in memory."""

    def close(self) -> None:
        """It has nothing open."""

    def _refuse(self) -> NoReturn:
        raise TypeError(f"{self.file.id} is a file of RocksDB, which reads its rows itself")


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    value = 0
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            value = zlib.crc32(data, value)
    return value
