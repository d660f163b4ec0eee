"""The disk cache of a machine: copies of whole files, shared by its hosts, and this host's partial files.

Half of the limit is for whole copies; partial files get what copies leave, at least the other half.
Invariants: hosts agree through the file system alone. A copy is evicted by removing its name, so a reader
of any host goes on and notices it at its next read (`OpenFile.is_evicted`).
Threads: any; the lock guards the estimate and the histories, and is held while files are removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from pathlib import Path

from headrace.blob.copies import FOLDER
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.files.policy import CachePolicy, History, HistoryPolicy, WholeFile
from headrace.files.space import PartialSpace

log = logging.getLogger("headrace.cache")
LOOK_MS = 10_000.0  # between two looks at what other hosts keep
HISTORIES = 4096  # files whose history is remembered


class CacheKeeper:
    """Bounds what a machine keeps of files that are elsewhere."""

    def __init__(
        self,
        local: Path,
        limit_bytes: int,
        space: PartialSpace,
        policy: CachePolicy | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._folder, self.limit_bytes, self._space = local / FOLDER, limit_bytes, space
        self._policy, self._clock = policy or HistoryPolicy(), clock
        self._lock = threading.Lock()
        self._kept_bytes = 0  # an estimate: what a look saw, and what was admitted since
        self._looked_ms = float("-inf")
        self._histories: dict[str, History] = {}
        self.evictions: Counter[str] = Counter()  # whole files, by reason

    @property
    def kept_bytes(self) -> int:
        """Bytes of whole copies, as far as known."""
        return self._kept_bytes

    def admits(self, size: int) -> bool:
        """Whether a new copy is kept; makes room for it."""
        if not self._policy.admits(size, self._copies_limit):
            return False
        with self._lock:
            self._kept_bytes += size
            due = self._clock.monotonic_ms() - self._looked_ms >= LOOK_MS
            if due or self._kept_bytes > self._copies_limit:
                self._make_room(size)
        self._share_out()
        return True

    def used(self, name: str, size: int) -> bool:
        """Takes a use of a partial file into account; whether it is worth having whole."""
        if not self._policy.admits(size, self._copies_limit):
            return False
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            history = self._policy.used(self._histories.pop(name, History()), now_ms)
            self._remember(name, history)
            return self._policy.loads(history, now_ms)

    @property
    def _copies_limit(self) -> int:
        return self.limit_bytes // 2

    def _remember(self, name: str, history: History) -> None:
        self._histories[name] = history
        if len(self._histories) > HISTORIES:
            self._histories.pop(next(iter(self._histories)))

    def _make_room(self, size: int) -> None:
        files = self._look()
        self._kept_bytes = sum(file.size for file in files) + size
        for file in self._policy.victims(files, self._copies_limit - size):
            self._evict(file)

    def _look(self) -> list[WholeFile]:
        self._looked_ms = self._clock.monotonic_ms()
        return [file for folder, _, names in os.walk(self._folder) for file in self._visible(folder, names)]

    def _visible(self, folder: str, names: list[str]) -> list[WholeFile]:
        files = []
        for name in names:
            with contextlib.suppress(OSError):
                path = os.path.join(folder, name)
                status = os.stat(path)
                if not name.startswith("."):
                    files.append(WholeFile(path, status.st_size, status.st_mtime * 1000))
        return files

    def _evict(self, file: WholeFile) -> None:
        with contextlib.suppress(OSError):
            self._space.probe("evicting")
            os.unlink(file.name)
            self._space.probe("evicted")
            self._kept_bytes -= file.size
            self.evictions["room"] += 1
            name = os.path.relpath(file.name, self._folder).partition("/")[2]
            history = self._policy.evicted(self._histories.pop(name, History()), self._clock.monotonic_ms())
            self._remember(name, history)
            log.info("evicted %s (%d bytes): the disk cache is full", name, file.size)

    def _share_out(self) -> None:
        if not self._space.in_memory:
            self._space.limit_bytes = self.limit_bytes - min(self._kept_bytes, self._copies_limit)
