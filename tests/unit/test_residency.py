"""Protects the decision to read ahead: a file in the page cache is recognised, and one outside of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.files.residency import resident_share

SIZE = 1 << 20


def test_written_bytes_are_resident_until_they_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    fd = os.open(path, os.O_RDONLY)
    try:
        try:
            os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError:
            pytest.skip("the file system cannot tell what the page cache has")
        assert resident_share(fd, SIZE) == 1.0
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert resident_share(fd, SIZE) < 0.5
    finally:
        os.close(fd)


def test_an_empty_file_needs_no_disk(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert resident_share(fd, 0) == 1.0
        assert resident_share(fd, SIZE) == 0.0, "a folder cannot be read"
    finally:
        os.close(fd)
