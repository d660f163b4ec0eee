"""Shared storage for simulations: names in a dictionary, files in one folder, and delayed requests.

Invariants: a name keeps its bytes until it is deleted; a manifest keeps its write id for ever. The storage
outlives every simulated process, and so do the writes under way (`late`). These arrive in any order and may
find that their name exists.
Threads: one.
"""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.blob.base import Blobs, IsDamaged, Range, always, check_name
from headrace.blob.locations import Locations, Wrap
from headrace.blob.unfinished import hidden_name
from headrace.clock import Clock
from headrace.errors import AlreadyExists, BlobMissing
from headrace.format.manifest import decode


class SimulatedStorage:
    """A location (`Blobs`) that is cheap to create and to discard."""

    in_place = True

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.root = str(folder)
        self.late: list[Callable[[], None]] = []
        self._folder = folder
        self._bytes: dict[str, bytes] = {}
        self._files: dict[str, Path] = {}  # files that are opened in place
        self._published: dict[str, bytes] = {}

    def put_if_absent(self, name: str, data: bytes) -> None:
        self._bind(name, bytes(data))
        if name.endswith(".manifest"):
            write_id = decode(data, name).write_id
            assert self._published.setdefault(write_id, data) == data, f"{name} was published twice"

    def staging(self, name: str) -> Path:
        return self._folder / hidden_name()

    def put_file(self, name: str, path: Path) -> None:
        self._bind(name, path.read_bytes())
        self._files[name] = path.rename(self._place(name))

    def get(self, name: str) -> bytes:
        if name not in self._bytes:
            raise BlobMissing(f"{self.root}/{name} does not exist")
        return self._bytes[name]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    ranges_at_once = 1

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        return [self.get_range(name, start, length) for start, length in ranges]

    def size(self, name: str) -> int:
        return len(self.get(name))

    def list(self, prefix: str) -> list[str]:
        return sorted(name for name in self._bytes if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self._bytes.pop(name, None)
        path = self._files.pop(name, None)
        if path is not None:
            path.unlink()

    def sweep(self, prefix: str) -> None:
        """Does nothing: all simulated processes are this one, so no unfinished file is left over."""

    def local_path(self, name: str) -> Path | None:
        if name in self._bytes and name not in self._files:  # a delayed request
            self._files[name] = self._place(name)
            self._files[name].write_bytes(self._bytes[name])
        return self._place(name)

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        return False

    def arrive(self, randomness: random.Random) -> None:
        """Applies one of the writes under way; another request may have repeated it meanwhile."""
        if self.late:
            with suppress(AlreadyExists):
                self.late.pop(randomness.randrange(len(self.late)))()

    def _bind(self, name: str, data: bytes) -> None:
        if check_name(name) in self._bytes:
            raise AlreadyExists(f"{self.root}/{name} already exists", hint="read it back and compare")
        self._bytes[name] = data

    def _place(self, name: str) -> Path:
        return self._folder / name.rpartition("/")[2]


class SimulatedLocations(Locations):
    """The locations of a simulated host: one storage, behind the wrapper `wrap`."""

    def __init__(self, local: Path, storage: SimulatedStorage, wrap: Wrap, clock: Clock) -> None:
        super().__init__(local, wrap=wrap, clock=clock)
        self._storage = storage

    def open(self, location: str, *, create: bool) -> Blobs:
        return self._cached(location, lambda: self._storage)
