"""The table that locates the bytes of a partition's files.

    staged ──(commit names it)──▶ log ──(published)──▶ shared
       └──────────(synchronous commit)─────────────────▶┘

Invariants: a file is in one place. A file that the table has no entry for is on shared storage, of which
the blob store may have a copy on the disk.
Threads: any; one lock guards the entries, and no I/O happens under it.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeVar

from headrace.blob.base import Blobs, IsDamaged, always
from headrace.blob.cached import CachedBlobs, download
from headrace.errors import StateMissing
from headrace.files.fetch import Fetcher
from headrace.files.fetched import Fetched
from headrace.files.local import LocalFolder
from headrace.files.opened import OpenFile
from headrace.files.partial import PartialFile
from headrace.files.space import PartialSpace
from headrace.format.names import Attempt, blob_name, parse_segment

log = logging.getLogger("headrace.cache")
T = TypeVar("T")
IN_MEMORY_BYTES = 8 << 20  # of ranges, where no space was given
_STAGED = "staged/"  # what temporary ids start with


class Place(Enum):
    """Where the bytes of a file are."""

    STAGED = "staged"  # in a local file that no version names
    LOG = "log"  # in the local log, and perhaps nowhere else
    SHARED = "shared"  # on shared storage


class FileTable:
    """The places of one partition's files."""

    def __init__(
        self,
        blobs: Blobs,
        prefix: str,
        local: LocalFolder | None = None,
        space: PartialSpace | None = None,
    ) -> None:
        self._blobs, self._prefix, self._local = blobs, prefix, local
        self._space = space
        self._lock = threading.Lock()
        self._staged: dict[str, Path] = {}
        self._logged: set[str] = set()
        self._fetched = Fetched()

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
        """The path of a file whose bytes are local."""
        path = self.local_path(file_id)
        if path is None:
            raise StateMissing(
                f"{self._blobs.root}/{self._blob(file_id)} has no local copy",
                hint="report this as a defect: the file is on shared storage and can be read from it",
            )
        return path

    def local_path(self, file_id: str) -> Path | None:
        """A local path of the bytes; None where they are only on shared storage."""
        with self._lock:
            staged, logged = self._staged.get(file_id), file_id in self._logged
        if staged is not None:
            return staged
        if logged and self._local is not None:
            return self._local.file(file_id)
        return self._blobs.local_path(self._blob(file_id))

    def open(self, file_id: str, size: int | None = None) -> OpenFile:
        """Opens the bytes; raises `StateMissing`. A file that is not local is fetched as it is read.

        A logged file may be published and removed meanwhile, also by another host of the machine. Such a
        file is opened on shared storage. So is a local copy that was evicted just now.
        """
        place, path = self.place_of(file_id), self.local_path(file_id)
        if path is None:
            return self._partial(file_id, size)
        try:
            return OpenFile.at(path)
        except StateMissing:
            if place is Place.LOG:
                self.share([file_id])
            elif place is Place.STAGED or self._blobs.in_place:
                raise
            return self._shared(file_id, size)

    def take_fetched(self) -> Fetched:
        """What was fetched of files that are elsewhere since the last call; the log has it too."""
        counts = self._fetched.take()
        if counts.requests or counts.evicted_bytes:
            log.info(
                "%s: %d bytes fetched in %d requests, for which readers waited %.0f ms; %d bytes were on "
                "the disk, %d left it for lack of room",
                self._prefix,
                counts.fetched_bytes,
                counts.requests,
                counts.fetch_ms,
                counts.cached_bytes,
                counts.evicted_bytes,
            )
        return counts

    def beside(self, call: Callable[[], T]) -> Callable[[], T]:
        """The result of a call that is a request: it is under way already where files are elsewhere."""
        if self._blobs.in_place or self._space is None:
            return call
        return self._space.fetcher.beside(call).result

    def in_parallel(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The results of calls that open files; at the same time where each of them is a request."""
        if self._blobs.in_place or self._space is None or len(calls) < 2:
            return [call() for call in calls]
        opened = [self._space.fetcher.beside(call) for call in calls]
        return [future.result() for future in opened]

    def _shared(self, file_id: str, size: int | None) -> OpenFile:
        path = self.local_path(file_id)
        return self._partial(file_id, size) if path is None else OpenFile.at(path)

    def _partial(self, file_id: str, size: int | None) -> OpenFile:
        if self._space is None:
            self._space = PartialSpace(None, IN_MEMORY_BYTES, Fetcher())
        blobs, name = self._blobs, self._blob(file_id)
        size = blobs.size(name) if size is None else size
        file = PartialFile(
            self._space,
            f"{blobs.root}/{name}",
            size,
            lambda start, length: blobs.get_range(name, start, length),
            lambda: blobs.size(name),
            name,
            self._fetched,
            blobs.ranges_at_once,
            lambda ranges: blobs.get_ranges(name, ranges),
        )
        if isinstance(blobs, CachedBlobs):
            file.load = partial(blobs.load, name)
        return file

    def _blob(self, file_id: str) -> str:
        return blob_name(self._prefix, file_id)

    def drop_copy(self, file_id: str, is_damaged: IsDamaged = always) -> bool:
        """Drops a damaged local copy of a file that is on shared storage; False: there is none."""
        if self.place_of(file_id) is not Place.SHARED:
            return False
        return self._blobs.drop_copy(self._blob(file_id), is_damaged)

    def open_again(self, file_id: str, damaged: OpenFile) -> OpenFile | None:
        """Opens new bytes for a damaged file; None where they are no copy."""
        has_original = self.drop_copy(file_id) or damaged.is_partial
        size = damaged.size if damaged.is_partial else None
        return self.open(file_id, size) if has_original else None

    def open_instead(self, file_id: str, evicted: OpenFile) -> OpenFile | None:
        """Opens a file whose local copy was evicted, to free the disk; None where it stays open."""
        is_shared = self.place_of(file_id) is Place.SHARED and not file_id.startswith(_STAGED)
        return self.open(file_id, evicted.size) if is_shared and not self._blobs.in_place else None

    def copy(self, file_id: str, target: Path, *, link: bool) -> None:
        """Copies the bytes to `target`, with a hard link where that is allowed and possible."""
        place, path = self.place_of(file_id), self.local_path(file_id)
        try:
            self._copy(file_id, path, target, link)
        except FileNotFoundError:
            if place is Place.LOG:
                self.share([file_id])
            elif place is Place.STAGED or self._blobs.in_place:
                raise
            self._copy(file_id, self.local_path(file_id), target, link)

    def _copy(self, file_id: str, path: Path | None, target: Path, link: bool) -> None:
        if path is None:
            download(self._blobs, self._blob(file_id), target)
        else:
            _copy(path, target, link)


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
