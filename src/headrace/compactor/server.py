"""The compactor's process: it listens, works, and ends with a signal.

Invariants: at most `jobs` compactions at a time, a further request is declined at once. A job ends when its
host closes the connection.
Threads: one accepts; two per job.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.clock import SYSTEM_CLOCK
from headrace.compactor.work import CompactionWork
from headrace.errors import HeadraceError
from headrace.plan.times import TIMES
from headrace.wire.compaction import CompactionRequest
from headrace.wire.frames import is_closed, send_frame
from headrace.wire.listener import Listener, tcp_socket

log = logging.getLogger("headrace.compactor")


class CompactorDoor:
    """Handles the connections of a listener."""

    def __init__(self, work: CompactionWork, jobs: int) -> None:
        self._work = work
        self._room = threading.BoundedSemaphore(jobs)

    def __call__(self, peer: socket.socket, request: dict[str, Any]) -> None:
        if "ping" in request:
            return send_frame(peer, {"pid": os.getpid()})
        if not self._room.acquire(blocking=False):
            return send_frame(peer, {"busy": True})
        try:
            with suppress(OSError):  # the host is gone
                send_frame(peer, self._answer(peer, request["compact"]))
        finally:
            self._room.release()
        return None

    def _answer(self, peer: socket.socket, values: dict[str, Any]) -> dict[str, Any]:
        with SignsOfLife(peer) as signs:
            try:
                request = CompactionRequest.of(values)
                entry = self._work.run(request, signs.stop)
            except HeadraceError as error:
                log.warning("a compaction failed: %s", error)
                return {"error": error.to_json()}
            except Exception as error:
                log.exception("a compaction failed")
                return {"error": f"{type(error).__name__}: {error}"}
        if entry is None:
            return {"nothing": True}
        log.info("%s/%s: %d rows, %d bytes", request.prefix, entry.name, entry.rows, entry.size)
        return {"entry": asdict(entry)}


class SignsOfLife:
    """Signs of life to the host while a job runs; `stop` is set once the host is gone."""

    def __init__(self, peer: socket.socket) -> None:
        self.stop = threading.Event()
        self._peer, self._over = peer, threading.Event()
        self._thread = threading.Thread(target=self._send, name="signs", daemon=True)

    def __enter__(self) -> SignsOfLife:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        while not SYSTEM_CLOCK.wait(self._over, 1000 * TIMES.compactor_beat_s):
            try:
                if is_closed(self._peer):
                    raise ConnectionError
                send_frame(self._peer, {"alive": True})
            except OSError:
                self.stop.set()
                return


def serve(
    host: str,
    port: int,
    secret: str,
    jobs: int,
    until: Callable[[], object],
    ready: Callable[[str], None],
) -> None:
    """Serves until `until` returns; `ready` gets the address."""
    with tempfile.TemporaryDirectory(prefix="headrace-compactor-") as folder:
        door = CompactorDoor(CompactionWork(Path(folder)), jobs)
        listener = Listener(tcp_socket(host, port), secret, door)
        listener.start()
        try:
            ready(f"{host}:{listener.port}")
            until()
        finally:
            listener.close()
