"""Blobs in a dictionary, for tests.

Invariants: a name keeps its bytes until it is deleted.
Threads: any; one lock guards the dictionary.
"""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from headrace.blob.base import IsDamaged, Range, always, check_name, check_prefix
from headrace.errors import AlreadyExists, BlobMissing


class MemoryBlobs:
    """A location in the memory of this process."""

    def __init__(self) -> None:
        self._bytes: dict[str, bytes] = {}
        self._lock = threading.Lock()

    in_place = False

    @property
    def root(self) -> str:
        return "memory:"

    def put_if_absent(self, name: str, data: bytes) -> None:
        with self._lock:
            if check_name(name) in self._bytes:
                raise AlreadyExists(f"{self.root}{name} already exists", hint="read it back and compare")
            self._bytes[name] = bytes(data)

    def staging(self, name: str) -> Path:
        check_name(name)
        return Path(tempfile.gettempdir()) / f"headrace-{uuid.uuid4().hex}"

    def put_file(self, name: str, path: Path) -> None:
        self.put_if_absent(name, path.read_bytes())
        path.unlink()

    def get(self, name: str) -> bytes:
        with self._lock:
            if check_name(name) not in self._bytes:
                raise BlobMissing(f"{self.root}{name} does not exist")
            return self._bytes[name]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    ranges_at_once = 1

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> list[bytes]:
        return [self.get_range(name, start, length) for start, length in ranges]

    def size(self, name: str) -> int:
        return len(self.get(name))

    def list(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        with self._lock:
            return sorted(name for name in self._bytes if name.startswith(prefix))

    def delete(self, name: str) -> None:
        with self._lock:
            self._bytes.pop(check_name(name), None)

    def sweep(self, prefix: str) -> None:
        check_prefix(prefix)

    def local_path(self, name: str) -> Path | None:
        check_name(name)
        return None

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        check_name(name)
        return False
