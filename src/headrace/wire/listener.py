"""A listener for plain sockets: every connection gets a thread, and the application's secret comes first.

Invariants: nothing of a request is looked at before its secret was compared, in constant time; a
connection that sends no request in time is closed.
Threads: one accepts; one per connection.
"""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.wire.acceptor import Acceptor
from headrace.wire.frames import PeerGone, receive_frame

log = logging.getLogger("headrace.wire")

REQUEST_WITHIN_S = 30.0
_BACKLOG = 128
_BUFFER_BYTES = 1 << 20

Handler = Callable[[socket.socket, dict[str, Any]], None]


class Listener(Acceptor):
    """Serves from `start` until `close`."""

    name = "door"

    def __init__(self, at: socket.socket, secret: str, handle: Handler) -> None:
        super().__init__(at, secret)
        self._secret = secret.encode()
        self._handle = handle

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            try:
                peer.settimeout(REQUEST_WITHIN_S)
                request = receive_frame(peer)
                if not hmac.compare_digest(str(request.pop("secret", "")).encode(), self._secret):
                    log.warning("a connection without the secret was closed")
                    return
                peer.settimeout(None)
                self._handle(peer, request)
            except (PeerGone, OSError, ValueError) as error:
                log.info("a connection ended: %s", error)
            except Exception:
                log.exception("a connection failed")


def unix_socket(path: Path) -> socket.socket:
    """A listening Unix socket; its directory keeps strangers out."""
    at = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    at.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    at.bind(str(path))
    at.listen(_BACKLOG)
    return at


def tcp_socket(host: str, port: int = 0) -> socket.socket:
    """A listening TCP socket; 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    at = socket.socket(family, socket.SOCK_STREAM)
    if port:
        at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    at.bind((host, port))
    at.listen(_BACKLOG)
    return at
