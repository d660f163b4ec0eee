"""Open bytes of a file.

Threads: any number of reads at the same time. `close` waits for none of them: the descriptor stays open
until the last read ends. A file that nobody references closes itself, because a store drops segments that a
compaction still reads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from headrace.errors import StateMissing
from headrace.row.arrays import I64

T = TypeVar("T")
DROP_BEHIND = "HEADRACE_DROP_BEHIND"  # set: no page of a file stays in the system's cache after its read


class OpenFile:
    """A descriptor that outlives `close` until the reads under way are done."""

    is_partial = False  # whether bytes may have to be fetched first
    _users = 0

    def __init__(self, fd: int, where: str) -> None:
        self.where = where  # for messages
        self.fd = fd  # to be used inside of `use` only
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

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    @property
    def memory_bytes(self) -> int:
        """Memory beside the descriptor."""
        return 0

    @property
    def is_evicted(self) -> bool:
        """Whether the file has lost its last name: it takes disk that should be free."""
        return os.fstat(self.fd).st_nlink == 0

    def ensure(self, starts: I64, ends: I64, *, once: bool = False) -> None:
        """Fetches what is not present of ordered byte ranges; `once`: they are not needed again soon."""

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Runs work that fetches ranges in another thread; a local file has none, and runs it here."""
        done: Future[T] = Future()
        done.set_result(work())
        return done

    def announce(self, starts: I64, ends: I64) -> None:
        """Begins to fetch ranges that will be needed next; returns at once."""

    @contextmanager
    def reading(self) -> Iterator[Self]:
        """The file, for one read: what was ensured stays present until the end."""
        with self.use():
            yield self

    @contextmanager
    def use(self) -> Iterator[Self]:
        """The file, open until the end."""
        with self._lock:
            if self._users == 0:
                raise ValueError(f"segment {self.where} is closed")
            self._users += 1
        try:
            yield self
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
                self._free()
            elif self._drops and self._users == 1:
                os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _free(self) -> None:
        os.close(self.fd)

    def __del__(self) -> None:
        if self._users:  # never closed, and no read is under way: a read references this object
            self._free()
