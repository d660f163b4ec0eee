"""A location whose blobs are elsewhere, with copies of whole blobs on the machine's own disk.

A file that this machine puts stays as its copy (write-through), if `admits` allows its size. Small blobs
that are read as bytes, such as manifests, have no copy. Ranges of others are read by `files/partial.py`.

Invariants: only a blob that is on storage gets a copy. Losing a copy loses nothing: anyone may remove it.
Threads: any.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from headrace.blob.base import Blobs, IsDamaged, Range, always, check_name, check_prefix
from headrace.blob.copies import LocalCopies
from headrace.errors import TryAgain

log = logging.getLogger("headrace.blob")
CHUNK_BYTES = 8 << 20  # bytes per request of a whole download
CHUNKS_AT_A_TIME = 8
Admits = Callable[[int], bool]  # whether a new copy of so many bytes may be kept


def any_size(size: int) -> bool:
    """Every copy may be kept."""
    return True


class CachedBlobs:
    """Another location, with local copies."""

    in_place = False

    def __init__(
        self, blobs: Blobs, copies: LocalCopies, admits: Admits = any_size, *, whole: bool = False
    ) -> None:
        self._blobs, self._copies, self._admits = blobs, copies, admits
        self._whole = whole  # whether a blob is copied whole before it is read

    @property
    def root(self) -> str:
        return self._blobs.root

    def put_if_absent(self, name: str, data: bytes) -> None:
        self._blobs.put_if_absent(name, data)

    def staging(self, name: str) -> Path:
        return self._copies.staging(check_name(name))

    def put_file(self, name: str, path: Path) -> None:
        """Keeps the file as its copy; without room, or without links, there is no copy."""
        second = self._second_name(name, path)
        try:
            self._blobs.put_file(name, path)
            if second is not None:
                self._copies.keep(name, second)
        except TryAgain as error:
            if path.exists():  # the write was not applied
                raise
            log.warning("%s/%s has no local copy yet: %s", self.root, name, error)
        finally:
            if second is not None:
                second.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        return self._blobs.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._blobs.get_range(name, start, length)

    @property
    def ranges_at_once(self) -> int:
        return self._blobs.ranges_at_once

    def get_ranges(self, name: str, ranges: Sequence[Range]) -> builtins.list[bytes]:
        return self._blobs.get_ranges(name, ranges)

    def size(self, name: str) -> int:
        """Also drops a local copy of another size."""
        size = self._blobs.size(name)
        self._copies.drop_unless_size(name, size)
        return size

    def list(self, prefix: str) -> list[str]:
        return self._blobs.list(prefix)

    def delete(self, name: str) -> None:
        self._blobs.delete(name)
        self._copies.drop(name)

    def sweep(self, prefix: str) -> None:
        """Also drops copies of blobs that another host has deleted.

        Copies are listed before blobs. A listed copy was on storage then, so a later listing without it
        means that the blob was deleted.
        """
        folder = check_prefix(prefix)
        self._blobs.sweep(prefix)
        self._copies.sweep(folder)
        copies = self._copies.names(folder)
        for deleted in set(copies).difference(self.list(f"{folder}/" if folder else "")) if copies else ():
            self._copies.drop(deleted)

    def local_path(self, name: str) -> Path | None:
        copy = self._copies.use(check_name(name))
        if copy is None and self._whole:
            self.load(name)
            copy = self._copies.use(name)
        return copy

    def load(self, name: str) -> None:
        """Makes a whole copy of a blob, if it is admitted."""
        if self._whole or self._admits(self._blobs.size(name)):
            staged = self._copies.staging(check_name(name))
            try:
                download(self._blobs, name, staged)
                self._copies.keep(name, staged)
            finally:
                staged.unlink(missing_ok=True)

    def drop_copy(self, name: str, is_damaged: IsDamaged = always) -> bool:
        path = self._copies.use(check_name(name))
        if path is None or not is_damaged(path):
            return False
        log.warning("the local copy %s is damaged and is dropped", path)
        self._copies.drop(name)
        return True

    def _second_name(self, name: str, path: Path) -> Path | None:
        """A second hard link to a file that is about to be moved away; None where it will have no copy."""
        with contextlib.suppress(OSError):
            if self._admits(path.stat().st_size):
                second = self._copies.staging(check_name(name))
                os.link(path, second)
                return second
        return None


def download(blobs: Blobs, name: str, target: Path) -> None:
    """Writes the whole blob to a local file, in bounded memory; a failure leaves no file."""
    size = blobs.size(name)
    try:
        with open(target, "wb") as file, ThreadPoolExecutor(CHUNKS_AT_A_TIME, "download") as pool:
            part = partial(_download_part, blobs, name, size, file.fileno())
            for _ in pool.map(part, range(0, size, CHUNK_BYTES)):
                pass
    except OSError as error:
        target.unlink(missing_ok=True)
        raise TryAgain(
            f"cannot write {target}: {error.strerror or error}",
            hint="free space there, or set spark.headrace.state.local to another directory",
        ) from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _download_part(blobs: Blobs, name: str, size: int, fd: int, start: int) -> None:
    length = min(CHUNK_BYTES, size - start)
    part = blobs.get_range(name, start, length)
    if len(part) != length:
        raise TryAgain(
            f"{blobs.root}/{name} was cut short at byte {start + len(part)}",
            hint="nothing to do: the batch is tried again",
        )
    left = memoryview(part)
    while left:
        done = os.pwrite(fd, left, start)
        left, start = left[done:], start + done
