"""The disk of a local directory: an id that all hosts with this directory share, and whether it is memory.

    <local>/log/disk        one line, made by the first host

Invariants: the id never changes. Threads: any, in any number of processes.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from headrace.blob.private import make_private
from headrace.blob.unfinished import hidden_name

_FOLDER, _NAME = "log", "disk"
_IN_MEMORY = ("tmpfs", "ramfs")


def disk_id(local: Path) -> str:
    """The id of the directory; the first call makes it."""
    path = local / _FOLDER / _NAME
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    make_private(path.parent)
    staged = path.with_name(hidden_name())
    staged.write_text(f"{uuid.uuid4().hex}\n")
    with suppress(FileExistsError):  # another host was faster
        os.link(staged, path)
    staged.unlink()
    return path.read_text().strip()


def is_in_memory(folder: Path, mounts: str | None = None) -> bool:
    """Whether a restart of the machine empties the folder, by the system's table of mounts."""
    if mounts is None:
        with suppress(OSError):
            mounts = Path("/proc/self/mounts").read_text()
    lines = [line.split() for line in (mounts or "").splitlines()]
    points = [(Path(line[1]), line[2]) for line in lines if len(line) > 2]
    path = folder.resolve()
    below = [(len(point.parts), kind) for point, kind in points if path.is_relative_to(point)]
    return bool(below) and max(below)[1] in _IN_MEMORY
