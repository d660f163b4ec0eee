"""Small files under Spark's checkpoint directory, on any file system.

A `file:` checkpoint is written with plain Python, any other through Hadoop's FileSystem in the JVM. Both
write a hidden file first and then give it its name.
"""

from __future__ import annotations

import uuid
from typing import Any

from py4j.protocol import Py4JJavaError


class HadoopFiles:
    """Files of a checkpoint on any file system that Hadoop supports."""

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
            return bytes(stream.readAllBytes()).decode("utf-8", "surrogateescape")
        finally:
            stream.close()

    def list(self, folder: str) -> list[str]:
        path = self._path(f"{self.root}/{folder}")
        statuses = self._fs.listStatus(path) if self._fs.exists(path) else []
        names = sorted(str(status.getPath().getName()) for status in statuses)
        return [name for name in names if not name.startswith(".")]

    def move(self, name: str, to: str) -> None:
        source, target = self._path(f"{self.root}/{name}"), self._path(f"{self.root}/{to}")
        self._fs.mkdirs(target.getParent())
        if self._fs.exists(source):
            self._rename(source, target, "OVERWRITE")

    def write(self, name: str, text: str) -> None:
        path = self._path(f"{self.root}/{name}")
        self._rename(self._staged(path, text), path, "OVERWRITE")

    def put(self, name: str, text: str) -> bool:
        path = self._path(f"{self.root}/{name}")
        if self._fs.exists(path):
            return False
        staged = self._staged(path, text)
        try:
            self._rename(staged, path, "NONE")
        except Py4JJavaError as error:
            if "FileAlreadyExists" not in str(error.java_exception.getClass().getName()):
                raise
            return False
        finally:
            self._fs.delete(staged, False)
        return True

    def remove(self, name: str) -> None:
        self._fs.delete(self._path(f"{self.root}/{name}"), False)

    def _staged(self, path: Any, text: str) -> Any:
        """The text in a hidden file beside `path`."""
        staged = self._path(f"{path.getParent().toString()}/.{path.getName()}.{uuid.uuid4().hex}.tmp")
        stream = self._fs.create(staged, True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        return staged

    def _rename(self, source: Any, target: Any, option: str) -> None:
        """Renames a file: OVERWRITE replaces an existing one, NONE refuses that."""
        hadoop = self._jvm.org.apache.hadoop.fs
        options = self._gateway.new_array(hadoop.Options.Rename, 1)
        options[0] = getattr(hadoop.Options.Rename, option)
        hadoop.FileContext.getFileContext(target.toUri(), self._fs.getConf()).rename(
            source, target, options
        )
