"""Open bytes of a file.

Threads: any number of reads at the same time. `close` waits for none of them: the descriptor stays open
until the last read ends. A file that nobody references closes itself, because a store drops segments that a
compaction still reads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import StateMissing

DROP_BEHIND = "HEADRACE_DROP_BEHIND"  # set: no page of a file stays in the system's cache after its read


class OpenFile:
    """A descriptor that outlives `close` until the reads under way are done."""

    def __init__(self, fd: int, where: str) -> None:
        self.where = where  # for messages
        self._fd = fd
        self._lock = threading.Lock()
        self._users = 1
        self._closed = False
        self._drops = DROP_BEHIND in os.environ
        if self._drops:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nor does the system read ahead

    @classmethod
    def at(cls, path: str | Path) -> OpenFile:
        """Opens a local file; raises `StateMissing`."""
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))
        except FileNotFoundError:
            hint = "put the file back, or go back to an older version that does not name it"
            raise StateMissing(f"segment {path} is not there", hint=hint) from None

    @contextmanager
    def use(self) -> Iterator[int]:
        """The descriptor, for one read."""
        with self._lock:
            if self._users == 0:
                raise ValueError(f"segment {self.where} is closed")
            self._users += 1
        try:
            yield self._fd
        finally:
            self._release()

    def close(self) -> None:
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._release()

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.close(self._fd)
            elif self._drops and self._users == 1:
                os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def __del__(self) -> None:
        if self._users:  # never closed, and no read is under way: a read references this object
            os.close(self._fd)
