"""Small files under a checkpoint directory on this machine's file systems.

A file is written under a hidden name first: fsync, then the name, then fsync of the folder.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path


class LocalFiles:
    """Files of a checkpoint on the driver's own file system."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._folder = Path("/" + root.removeprefix("file:").lstrip("/"))

    def read(self, name: str) -> str | None:
        try:
            return (self._folder / name).read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        try:
            names = sorted(path.name for path in (self._folder / folder).iterdir())
        except FileNotFoundError:
            return []
        return [name for name in names if not name.startswith(".")]

    def move(self, name: str, to: str) -> None:
        source, target = self._folder / name, self._folder / to
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            source.replace(target)
            _sync_folder(target.parent)
            _sync_folder(source.parent)

    def write(self, name: str, text: str) -> None:
        path = self._folder / name
        _staged(path, text).replace(path)
        _sync_folder(path.parent)

    def put(self, name: str, text: str) -> bool:
        return put_file(self._folder / name, text)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


def put_file(path: Path, text: str) -> bool:
    """Writes a file where there is none, whole or not at all; returns whether it was written."""
    staged = _staged(path, text)
    try:
        os.link(staged, path)
    except FileExistsError:
        return False
    finally:
        staged.unlink()
    _sync_folder(path.parent)
    return True


def _staged(path: Path, text: str) -> Path:
    """The text in a hidden file beside `path`, on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    with staged.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return staged


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
