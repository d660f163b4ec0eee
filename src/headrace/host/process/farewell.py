"""The request to leave, from a signal or from any thread; the main thread waits for it.

A signal's Python handler runs only when the main thread executes bytecode. A signal that arrives just
before the main thread waits, or in another thread, would leave it waiting for ever. So the interpreter's
own handler writes a byte to a pipe, and the main thread reads that pipe.
Invariants: a request before `wait` is not lost. Threads: `ask` from any; the rest from the main thread.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Farewell:
    """Open from its creation until `close`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _ignore)  # the byte in the pipe counts, not the handler

    def ask(self) -> None:
        with suppress(BlockingIOError):  # a full pipe has enough requests
            os.write(self._write, b"\0")

    def wait(self) -> None:
        """Returns after the first request."""
        os.read(self._read, 1)

    def close(self) -> None:
        """Later signals have no effect: the process leaves already.

        The pipe stays open until the process ends, because other threads may still call `ask`.
        """
        signal.set_wakeup_fd(-1)


def _ignore(*_: Any) -> None:
    pass
