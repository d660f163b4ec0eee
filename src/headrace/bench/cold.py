"""State on a disk whose pages no cache keeps, as where it is larger than all of the machine's memory.

Threads: one of its own, which ends with the context.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

AGAIN_S = 0.05


@contextmanager
def cold_files(folder: Path) -> Iterator[None]:
    """Meanwhile the kernel is told again and again that it need not keep the pages of any file there."""
    over = threading.Event()

    def keep_cold() -> None:
        while not over.wait(AGAIN_S):
            let_go(folder)

    thread = threading.Thread(target=keep_cold, name="cold-files", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def let_go(folder: Path) -> None:
    """Pages that are not written back yet stay."""
    for path in folder.rglob("*.segment"):
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
