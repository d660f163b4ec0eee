"""An acceptor of connections: it serves each one in a thread of its own.

Invariants: after `close` no connection is accepted. Threads: one accepts; one per connection.
"""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress


class Acceptor(ABC):
    """Serves connections of a listening socket, from `start` until `close`."""

    name = "acceptor"  # of its threads

    def __init__(self, at: socket.socket, secret: str) -> None:
        if not secret:
            raise ValueError("an empty secret would let anyone in")
        self._at = at
        self._closing = False

    @property
    def port(self) -> int:
        return int(self._at.getsockname()[1])

    def start(self) -> None:
        threading.Thread(target=self._accept, name=self.name, daemon=True).start()

    def close(self) -> None:
        self._closing = True
        with suppress(OSError):
            self._at.shutdown(socket.SHUT_RDWR)
        self._at.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                peer, _ = self._at.accept()
            except OSError:
                if self._closing:
                    return
                continue
            name = f"{self.name}-peer"
            threading.Thread(target=self._serve, args=(peer,), name=name, daemon=True).start()

    @abstractmethod
    def _serve(self, peer: socket.socket) -> None:
        """Serves one connection until it ends."""
