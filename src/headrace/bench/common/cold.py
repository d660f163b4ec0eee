"""State files outside the page cache, as when state is larger than the machine's memory.

Threads: one of its own, which ends with the context.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.clock import SYSTEM_CLOCK

AGAIN_MS = 50.0


@contextmanager
def cold_files(folder: Path) -> Iterator[None]:
    """Advises the kernel repeatedly to drop the cached pages of all files under a folder."""
    over = threading.Event()

    def keep_cold() -> None:
        while not SYSTEM_CLOCK.wait(over, AGAIN_MS):
            drop_pages(folder)

    thread = threading.Thread(target=keep_cold, name="cold-files", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def drop_pages(folder: Path) -> None:
    """Drops clean pages; pages that are not written back yet stay."""
    for path in folder.rglob("*.segment"):
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
