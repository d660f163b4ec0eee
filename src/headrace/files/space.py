"""The disk that partially present files of a host take together, bounded; and what was read from where.

Invariants: `used_bytes` is the sum over open partial files. Above the limit units that were not used since
the last eviction go first, in the files used longest ago; then all others, except those of reads under way.
Threads: any. The lock guards counters only; files are shrunk one by one under their own lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from headrace.blob.private import make_private
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.files.fetch import Fetcher
from headrace.files.fetched import Fetched
from headrace.files.local import writing
from headrace.files.partial import PartialFile
from headrace.row.arrays import I64

log = logging.getLogger("headrace.cache")
FOLDER = "ranges"
_SLACK = 8  # an eviction frees this part of the limit beyond what is needed, so that evictions are rare


def _never(name: str, size: int) -> bool:
    """No file is loaded whole."""
    return False


def _unobserved(moment: str) -> None:
    """Does nothing."""


class PartialSpace:
    """Room for partial files: on the disk under `folder`, or in memory where `folder` is None."""

    def __init__(
        self, folder: Path | None, limit_bytes: int, fetcher: Fetcher, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.in_memory = folder is None
        self.folder = Path("memory") if folder is None else folder / FOLDER
        self.limit_bytes, self.fetcher, self.clock = limit_bytes, fetcher, clock
        self.reads, self.used_bytes = Fetched(), 0
        self.is_worth_loading: Callable[[str, int], bool] = _never
        self.probe: Callable[[str], None] = _unobserved  # called at moments of the disk cache, by name
        self._files: weakref.WeakSet[PartialFile] = weakref.WeakSet()
        self._lock = threading.RLock()  # a file may be freed while it is held: `__del__`
        self._evicting = threading.Lock()
        self._warned = False

    # ── files ────────────────────────────────────────────────────────────────────────────────

    def new_file(self, size: int) -> int:
        """The descriptor of a new sparse file without a name."""
        fd = os.memfd_create("headrace-ranges", os.MFD_CLOEXEC) if self.in_memory else self._unnamed()
        with writing(self.folder):
            os.truncate(fd, size)
        return fd

    def _unnamed(self) -> int:
        with writing(self.folder):
            make_private(self.folder)
            with contextlib.suppress(OSError):  # not every file system has it
                return os.open(self.folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fd, path = tempfile.mkstemp(dir=self.folder)
            os.unlink(path)
            return fd

    def add(self, file: PartialFile) -> None:
        with self._lock:
            self._files.add(file)

    # ── counts ───────────────────────────────────────────────────────────────────────────────

    def grew(self, nbytes: int) -> None:
        with self._lock:
            self.used_bytes += nbytes

    def count(self, file: PartialFile, more: Fetched) -> None:
        """Adds to what the host and the file's partition have read."""
        with self._lock:
            self.reads.add(more)
            file.fetched.add(more)

    def count_fetch(self, file: PartialFile, lasted_ms: float) -> None:
        """Counts requests that end now."""
        self.count(file, Fetched(fetch_ms=lasted_ms))
        with self._lock:
            file.fetched.stretch.add(self.clock.now_ms(), lasted_ms)

    def wait(self, file: PartialFile, changed: threading.Condition) -> None:
        """Waits for a range that another thread fetches."""
        begun_ms = self.clock.monotonic_ms()
        changed.wait()
        self.count(file, Fetched(fetch_ms=self.clock.monotonic_ms() - begun_ms))

    # ── eviction ─────────────────────────────────────────────────────────────────────────────

    def has_room(self, nbytes: int) -> bool:
        """Whether bytes that nobody waits for may be kept: in the first half of the limit."""
        return self.used_bytes + nbytes <= self.limit_bytes // 2

    def relieve(self, file: PartialFile, units: I64) -> None:
        """Evicts down to below the limit; `units` of `file` are about to be read."""
        if self.used_bytes <= self.limit_bytes:
            return
        with self._evicting:
            over = self.used_bytes - self.limit_bytes
            if over > 0:
                self._evict(over + self.limit_bytes // _SLACK, file, units)

    def _evict(self, nbytes: int, file: PartialFile, units: I64) -> None:
        with self._lock:
            files = sorted(self._files, key=lambda each: each.used_ms)
        freed = self._shrink(files, nbytes, file, units)
        if freed < nbytes:
            for each in files:
                each.cool()
            freed += self._shrink(files, nbytes - freed, file, units)
        log.debug("evicted %d bytes of ranges: %d of %d are used", freed, self.used_bytes, self.limit_bytes)

    def _shrink(self, files: list[PartialFile], nbytes: int, file: PartialFile, units: I64) -> int:
        freed = 0
        for each in files:
            if freed < nbytes:
                freed += each.shrink(nbytes - freed, units if each is file else None)
        return freed

    def cannot_punch(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning("%s cannot free parts of a file: %s", self.folder, reason)
