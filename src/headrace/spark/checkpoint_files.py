"""Small files under Spark's checkpoint directory, wherever that is.

A `file:` checkpoint is written with plain Python (temporary file, fsync, rename); any other through
Hadoop's FileSystem in the JVM. Both write a new file first and then put it in the place of the old one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any


class LocalFiles:
    """Files of a checkpoint on the driver's own file system."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._folder = Path("/" + root.removeprefix("file:").lstrip("/"))

    def read(self, name: str) -> str | None:
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> list[str]:
        try:
            found = sorted(path.name for path in (self._folder / folder).iterdir())
        except FileNotFoundError:
            return []
        return [name for name in found if not name.startswith(".")]

    def move(self, name: str, to: str) -> None:
        source, target = self._folder / name, self._folder / to
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            source.replace(target)
            _sync_folder(target.parent)
            _sync_folder(source.parent)

    def write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HadoopFiles:
    """Files of a checkpoint on any file system that Hadoop reaches."""

    def __init__(self, root: str, gateway: Any, configuration: Any) -> None:
        self.root = root
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._fs = self._path(root).getFileSystem(configuration)

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)

    def read(self, name: str) -> str | None:
        path = self._path(f"{self.root}/{name}")
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def list(self, folder: str) -> list[str]:
        path = self._path(f"{self.root}/{folder}")
        found = self._fs.listStatus(path) if self._fs.exists(path) else []
        names = sorted(str(status.getPath().getName()) for status in found)
        return [name for name in names if not name.startswith(".")]

    def move(self, name: str, to: str) -> None:
        source, target = self._path(f"{self.root}/{name}"), self._path(f"{self.root}/{to}")
        self._fs.mkdirs(target.getParent())
        if self._fs.exists(source):
            self._replace(source, target)

    def write(self, name: str, text: str) -> None:
        path, temporary = self._path(f"{self.root}/{name}"), self._path(f"{self.root}/{name}.tmp")
        stream = self._fs.create(temporary, True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        self._replace(temporary, path)

    def _replace(self, temporary: Any, path: Any) -> None:
        """Rename over what is there; a plain rename would refuse."""
        hadoop = self._jvm.org.apache.hadoop.fs
        options = self._gateway.new_array(hadoop.Options.Rename, 1)
        options[0] = hadoop.Options.Rename.OVERWRITE
        hadoop.FileContext.getFileContext(path.toUri(), self._fs.getConf()).rename(temporary, path, options)
