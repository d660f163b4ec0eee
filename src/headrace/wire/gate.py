"""A gate before a Flight server: a connection must show the secret in its first bytes.

gRPC collects a whole message before any code of ours can look at the call. The gate stands on the network
in its place, and the server listens on a Unix socket behind it. gRPC sends headers as plain bytes, so the
secret of the first call is visible in them; the server still checks the secret of every call.

Invariants: of a connection without the secret at most `UNPROVEN_BYTES` reach the server, and it is closed
after them or in time. Threads: one accepts; two per connection.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from pathlib import Path

from headrace.wire.acceptor import Acceptor
from headrace.wire.secret import bearer

log = logging.getLogger("headrace.wire")

UNPROVEN_BYTES = 1 << 16
UNPROVEN_S = 30.0
_CHUNK_BYTES = 1 << 18


class Gate(Acceptor):
    """Passes connections on to a Unix socket, from `start` until `close`."""

    name = "gate"

    def __init__(self, at: socket.socket, secret: str, server: Path) -> None:
        super().__init__(at, secret)
        self._server = server
        self._proof = bearer(secret)[1]

    def _serve(self, peer: socket.socket) -> None:
        with peer, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            try:
                server.connect(str(self._server))
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                log.info("a connection found no server: %s", error)
                return
            back = threading.Thread(target=_pass_on, args=(server, peer), name="gate-back", daemon=True)
            back.start()
            if self._admits(peer, server):
                _pass_on(peer, server)
            else:
                _end(peer)
                _end(server)
            back.join()

    def _admits(self, peer: socket.socket, server: socket.socket) -> bool:
        """Passes the first bytes on until they have shown the secret; False: they did not."""
        shown = b""
        peer.settimeout(UNPROVEN_S)
        with suppress(OSError):
            while len(shown) < UNPROVEN_BYTES:
                chunk = peer.recv(UNPROVEN_BYTES - len(shown))
                shown += chunk
                if not chunk:
                    return False
                server.sendall(chunk)
                if self._proof in shown:
                    peer.settimeout(None)
                    return True
        log.warning("a connection without the secret was closed")
        return False


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Copies bytes until the source ends."""
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    with suppress(OSError):
        while count := source.recv_into(buffer):
            target.sendall(buffer[:count])
        target.shutdown(socket.SHUT_WR)
        return
    _end(source)
    _end(target)


def _end(peer: socket.socket) -> None:
    with suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
