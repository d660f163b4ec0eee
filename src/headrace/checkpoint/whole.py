"""Verifies whole files before they leave the machine.

A file that was renamed without fsync may have its name and size after a power loss, and not its bytes.
Threads: any; there is no state beside the files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headrace.errors import StateCorrupt
from headrace.format import segment as form
from headrace.format.manifest import SegmentEntry
from headrace.store.rocksdb.sst import SST
from headrace.store.rocksdb.sst import checksum as crc_of
from headrace.store.segments.file import SegmentFile


def check_whole(path: Path, entry: SegmentEntry) -> None:
    """Raises `StateCorrupt` unless `path` has the very bytes that `entry` names.

    A missing file raises `FileNotFoundError`.
    """
    size = path.stat().st_size
    if size != entry.size:
        raise _other(path, f"it has {size} bytes, and {entry.size} were written")
    if entry.kind != SST:
        _check_segment(path, entry)
    elif crc_of(path) != entry.crc:
        raise _other(path, "it fails its checksum")


def _check_segment(path: Path, entry: SegmentEntry) -> None:
    with path.open("rb") as file:
        header = file.read(form.HEADER_BYTES)
    width = int(np.frombuffer(header, np.uint64)[2]) if len(header) == form.HEADER_BYTES else 0
    form.check_header(path, header, width)
    segment = SegmentFile.open(path, width, (), checksum=entry.crc, kind=entry.kind)
    try:
        segment.verify()
    finally:
        segment.close()


def _other(path: Path, problem: str) -> StateCorrupt:
    return StateCorrupt(
        f"the local file {path} is damaged: {problem}",
        hint="nothing to do: it is sealed again from the local log, or hr.start takes its batch back",
    )
