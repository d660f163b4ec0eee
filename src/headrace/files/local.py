"""A partition's files on the machine's own disk, until shared storage has them.

    <folder>/segments/v…-s….segment     the same names as on shared storage
    <folder>/segments/.…                staged: without a name, removed when their process is gone

Invariants: a visible file is whole, until the machine loses power: files are synced only where a caller
does it (`sync_file`).
Threads: any, in any number of processes; there is no state beside the files, except that folders were made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from headrace.blob.private import make_private
from headrace.blob.unfinished import hidden_name, is_alive, is_left_behind, this_machine
from headrace.errors import TryAgain
from headrace.format.names import Attempt, parse_segment

SEGMENTS = "segments"


class LocalFolder:
    """The local folder of one partition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_open = False

    def open(self) -> None:
        """Makes the folders, closed to other users, and removes unfinished files of dead processes."""
        if self.is_open:
            return
        segments = self.folder / SEGMENTS
        with writing(segments):
            make_private(self.folder)
            make_private(segments)
        machine = this_machine()
        for path in (*self.folder.iterdir(), *segments.iterdir()):
            if is_left_behind(path.name, machine, is_alive):
                path.unlink(missing_ok=True)
        self.is_open = True

    def file(self, name: str) -> Path:
        """The path of the segment `name`, whether or not it exists."""
        return self.folder / name

    def staging(self) -> Path:
        """A new hidden path for a segment."""
        return self.folder / SEGMENTS / hidden_name()

    def remove_segments(self, published: Attempt) -> None:
        """Removes segments written up to an attempt that is published.

        Segments of a newer attempt at the same version stay: they may not be on shared storage yet.
        """
        with contextlib.suppress(FileNotFoundError):
            for path in (self.folder / SEGMENTS).iterdir():
                parsed = parse_segment(path.name)
                if parsed is not None and parsed.attempt <= published:
                    path.unlink(missing_ok=True)


def second_name(path: Path) -> Path | None:
    """A second hard link to a file, to be moved away; None when the file does not exist."""
    staged = path.with_name(hidden_name())
    with writing(path):
        try:
            os.link(path, staged)
        except FileNotFoundError:
            return None
    return staged


def move(path: Path, target: Path) -> None:
    """Renames a file, also between file systems."""
    with writing(target):
        try:
            path.rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            staged = target.with_name(hidden_name())
            shutil.move(path, staged)
            staged.rename(target)


def sync_file(path: Path) -> None:
    """Brings a file's bytes, or a folder's names, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folders(folder: Path) -> None:
    """Brings the names in a folder to the disk, and those of the folders that lead to it."""
    device = folder.stat().st_dev
    for path in (folder, *folder.parents):
        if path.stat().st_dev != device or path.stat().st_uid != os.getuid():
            return
        sync_file(path)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a system error of a write to the local disk into `TryAgain`."""
    try:
        yield
    except OSError as error:
        raise TryAgain(
            f"cannot write to the local disk at {path}: {error.strerror or error}",
            hint="free space there, or set spark.headrace.state.local to another directory of your own; "
            "nothing was lost, the batch is tried again",
        ) from error
