"""`headrace compactor`: a process that compacts for hosts elsewhere."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.wire.compaction import address_of, read_secret


def run(listen: str, secret: Path, jobs: int, say: Callable[[str], None]) -> int:
    """Serves until a signal; the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        host, port = address_of(listen)
        shared = read_secret(secret)
    except (HeadraceError, ValueError) as error:
        say(str(error))
        return 2
    from headrace.compactor.server import serve
    from headrace.host.process.main import allow_many_files, warm_kernels

    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    allow_many_files()
    warm_kernels()
    try:
        serve(host, port, shared, jobs, over.wait, lambda at: say(f"compactor at {at}"))
    except OSError as error:
        say(f"cannot listen at {listen}: {error.strerror or error}")
        return 1
    return 0
