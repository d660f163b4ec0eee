"""A machine whose page cache is too small for the state: segments are taken out of it all the time.

The memory limit bounds the host, but on a machine with much free memory every read of its files comes from
the page cache. Where state is larger than the memory of the machine, reads go to the disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EVERY_S = 0.2


@contextmanager
def cold(folder: Path) -> Iterator[None]:
    """Meanwhile the segments below `folder` are not in the page cache for long."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(EVERY_S):
            for path in folder.rglob("*.segment"):
                _drop(path)

    thread = threading.Thread(target=work, name="cold", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _drop(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:  # collected meanwhile
        return
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
