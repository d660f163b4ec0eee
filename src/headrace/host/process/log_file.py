"""The host's log: standard error goes to a file that is renamed before it grows too large.

Both the records of Python's logging and what libraries write themselves go to the descriptors 1 and 2.
Invariants: the newest `KEPT_BYTES` of the log are in the file or in the one before it (`.1`).
Threads: any; a lock of `logging.Handler` guards each record.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

KEPT_BYTES = 8 << 20
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class RotatingLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes records to standard error, and renames its file once it is large."""

    def __init__(
        self, path: Path, kept_bytes: int = KEPT_BYTES, descriptors: tuple[int, ...] = (1, 2)
    ) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(FORMAT))
        self._path, self._kept_bytes, self._descriptors = path, kept_bytes, descriptors

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        with suppress(OSError):  # a full disk must not end the host
            self._rotate_if_large()

    def _rotate_if_large(self) -> None:
        """Renames the file, unless the descriptors are not this file: a test may have redirected them."""
        status = os.fstat(self._descriptors[-1])
        if status.st_size < self._kept_bytes or not os.path.samestat(status, os.stat(self._path)):
            return
        self._path.replace(previous(self._path))
        opened = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for descriptor in self._descriptors:
            os.dup2(opened, descriptor)
        os.close(opened)


def previous(path: Path) -> Path:
    """The file before the current one."""
    return path.with_name(f"{path.name}.1")
