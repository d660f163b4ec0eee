"""The table that locates the bytes of a partition's files.

    staged ──(commit names it)──▶ log ──(published)──▶ shared
       └──────────(synchronous commit)─────────────────▶┘

Invariants: a file is in one place. A file that the table has no entry for is on shared storage, of which
the blob store may have a copy on the disk.
Threads: any; one lock guards the entries, and no I/O happens under it.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from headrace.blob.base import Blobs, IsDamaged, always
from headrace.errors import StateMissing
from headrace.files.local import LocalFolder
from headrace.files.opened import OpenFile
from headrace.format.names import Attempt, parse_segment

_STAGED = "staged/"  # what temporary ids start with


class Place(Enum):
    """Where the bytes of a file are."""

    STAGED = "staged"  # in a local file that no version names
    LOG = "log"  # in the local log, and perhaps nowhere else
    SHARED = "shared"  # on shared storage


class FileTable:
    """The places of one partition's files."""

    def __init__(self, blobs: Blobs, prefix: str, local: LocalFolder | None = None) -> None:
        self._blobs, self._prefix, self._local = blobs, prefix, local
        self._lock = threading.Lock()
        self._staged: dict[str, Path] = {}
        self._logged: set[str] = set()

    # ── places ───────────────────────────────────────────────────────────────────────────────

    def place_of(self, file_id: str) -> Place:
        with self._lock:
            if file_id in self._staged:
                return Place.STAGED
            return Place.LOG if file_id in self._logged else Place.SHARED

    def stage(self, path: Path) -> str:
        """Adds a file that no version names; returns its temporary id."""
        file_id = f"{_STAGED}{path.name}"
        with self._lock:
            self._staged[file_id] = path
        return file_id

    def log(self, file_ids: Iterable[str]) -> None:
        """The bytes of these files are in the local log."""
        with self._lock:
            self._logged.update(file_ids)

    def share(self, file_ids: Iterable[str]) -> None:
        """The bytes of these files are on shared storage."""
        with self._lock:
            self._logged.difference_update(file_ids)

    def retire(self, published: Attempt) -> None:
        """All logged files written up to an attempt that is published are on shared storage."""
        with self._lock:
            self._logged = {name for name in self._logged if not _is_of(name, published)}

    def unstage(self, file_id: str) -> None:
        """A staged file was moved to its name, or removed."""
        with self._lock:
            self._staged.pop(file_id, None)

    def discard(self, file_id: str) -> None:
        """Removes a staged file. Open readers keep their descriptor."""
        with self._lock:
            path = self._staged.pop(file_id, None)
        if path is not None:
            path.unlink(missing_ok=True)

    # ── bytes ────────────────────────────────────────────────────────────────────────────────

    def path(self, file_id: str) -> Path:
        """A local path of the bytes; a remote file is copied to the disk first."""
        with self._lock:
            staged, logged = self._staged.get(file_id), file_id in self._logged
        if staged is not None:
            return staged
        if logged and self._local is not None:
            return self._local.file(file_id)
        path = self._blobs.local_path(f"{self._prefix}/{file_id}")
        if path is None:
            raise StateMissing(
                f"{self._blobs.root} has no files that can be read in place",
                hint="set spark.headrace.state.location to a directory on a file system, or to s3://…",
            )
        return path

    def open(self, file_id: str) -> OpenFile:
        """Opens the bytes; raises `StateMissing`.

        A logged file may be published and removed meanwhile, also by another host of the machine. Such a
        file is opened on shared storage.
        """
        place = self.place_of(file_id)
        try:
            return OpenFile.at(self.path(file_id))
        except StateMissing:
            if place is not Place.LOG:
                raise
            self.share([file_id])
            return OpenFile.at(self.path(file_id))

    def drop_copy(self, file_id: str, is_damaged: IsDamaged = always) -> bool:
        """Drops a damaged local copy of a file that is on shared storage; False: there is none."""
        if self.place_of(file_id) is not Place.SHARED:
            return False
        return self._blobs.drop_copy(f"{self._prefix}/{file_id}", is_damaged)

    def open_again(self, file_id: str) -> OpenFile | None:
        """Opens a new local copy of a file; None where its bytes are no copy."""
        return self.open(file_id) if self.drop_copy(file_id) else None

    def copy(self, file_id: str, target: Path, *, link: bool) -> None:
        """Copies the bytes to `target`, with a hard link where that is allowed and possible."""
        place = self.place_of(file_id)
        try:
            _copy(self.path(file_id), target, link)
        except FileNotFoundError:
            if place is not Place.LOG:
                raise
            self.share([file_id])
            _copy(self.path(file_id), target, link)


def _copy(path: Path, target: Path, link: bool) -> None:
    if link:
        try:
            os.link(path, target)
            return
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without links
            pass
    shutil.copyfile(path, target)


def _is_of(name: str, published: Attempt) -> bool:
    parsed = parse_segment(name)
    return parsed is not None and parsed.attempt <= published
