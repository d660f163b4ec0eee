"""Folders on the machine's own disk that no other user can redirect.

Whoever owns a symlink on the way to a folder, or a folder where anyone may make one, decides what lies in
it. Such a path is refused before anything is made. The umask does not matter: folders are made for this
user alone. Threads: any, in any number of processes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def make_private(folder: Path) -> None:
    """Makes a folder and what leads to it, closed to other users; raises `PermissionError`."""
    for path in _way_to(folder):
        if not refuse_foreign(path):
            with contextlib.suppress(FileExistsError):  # another process of this user, or a stranger
                os.mkdir(path, 0o700)
                path.chmod(0o700)
            refuse_foreign(path)
    if folder.lstat().st_uid != os.getuid():
        raise _foreign(folder)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


def refuse_way(folder: Path) -> None:
    """Raises `PermissionError` if a part of the way to a folder is another user's."""
    for path in _way_to(folder):
        if not refuse_foreign(path):
            return


def refuse_foreign(path: Path) -> bool:
    """Whether `path` exists; raises if it is another user's symlink, or folder among everybody's."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    if status.st_uid not in (0, os.getuid()):
        anyone_makes_it = bool(path.parent.stat().st_mode & stat.S_IWOTH)
        if stat.S_ISLNK(status.st_mode) or anyone_makes_it:
            raise _foreign(path)
    return True


def _way_to(folder: Path) -> list[Path]:
    """All folders from the root to `folder`."""
    absolute = folder.absolute()
    return [*reversed(absolute.parents), absolute]


def _foreign(path: Path) -> PermissionError:
    return PermissionError(
        f"{path} belongs to another user; set spark.headrace.state.local to a directory of your own"
    )
