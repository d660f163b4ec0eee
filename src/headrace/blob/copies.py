"""Copies of blobs on the machine's own disk, so that state is not read over the network.

    <local>/copies/<digest of the location>/<name of the blob>

Invariants: a visible copy is complete on disk and never changes; unfinished copies are hidden
(`blob/unfinished.py`). Losing a copy loses nothing. Hosts and applications of one machine share copies.
Threads: any, in any number of processes; all state is in the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from headrace.blob.private import make_private
from headrace.blob.unfinished import hidden_name, is_alive, is_left_behind, this_machine
from headrace.errors import TryAgain

FOLDER = "copies"
UNUSED_MS = 3 * 24 * 3600 * 1000  # a copy that no reader has opened for this long is removed


class LocalCopies:
    """The copies of one location's blobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def open(cls, local: Path, location: str) -> LocalCopies:
        """Opens the copies of `location` under the hosts' local directory."""
        digest = hashlib.sha256(location.encode()).hexdigest()[:16]
        folder = local / FOLDER / digest
        with _writing(folder):
            make_private(folder.parent)
            make_private(folder)
        return cls(folder)

    def path(self, name: str) -> Path:
        return self._folder / name

    def staging(self, name: str) -> Path:
        """A new hidden path beside the copy of `name`."""
        parent = self.path(name).parent
        with _writing(parent):
            parent.mkdir(parents=True, exist_ok=True)
        return parent / hidden_name()

    def use(self, name: str) -> Path | None:
        """The copy, marked as used; None when the copy is missing."""
        path = self.path(name)
        try:
            os.utime(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return path

    def keep(self, name: str, finished: Path) -> Path:
        """Makes a finished file the copy of `name`; `finished` no longer exists afterwards."""
        path = self.path(name)
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if finished.parent != path.parent:  # the file may be on another file system
                staged = self.staging(name)
                shutil.move(finished, staged)
                finished = staged
            _sync(finished)
            finished.replace(path)
        return path

    def drop(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self.path(name).unlink()

    def drop_unless_size(self, name: str, size: int) -> None:
        """Drops a truncated or overwritten copy, by its size."""
        with contextlib.suppress(OSError):
            if self.path(name).stat().st_size != size:
                self.drop(name)

    def names(self, folder: str) -> list[str]:
        """The blobs under `folder` that have a copy."""
        paths = self._files(self._folder / folder)
        return [path.relative_to(self._folder).as_posix() for path in paths if path.name[0] != "."]

    def sweep(self, folder: str) -> None:
        """Removes unfinished files of ended processes."""
        machine = this_machine()
        for path in self._files(self._folder / folder):
            if is_left_behind(path.name, machine, is_alive):
                with contextlib.suppress(OSError):
                    path.unlink()

    def drop_unused(self, now_ms: int) -> None:
        """Removes copies that were not used for long, such as those of partitions on other machines now."""
        for path in self._files(self._folder):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime * 1000 < now_ms - UNUSED_MS:
                    path.unlink()

    def _files(self, top: Path) -> Iterator[Path]:
        for folder, _, files in os.walk(top):
            yield from (Path(folder, file) for file in files)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TryAgain(
            f"cannot write the local copy {path}: {error.strerror or error}",
            hint="free space there, or set spark.headrace.state.local to another directory of your own",
        ) from error
