"""The coordinator's socket for the JVM operator: one JSON request and one JSON answer per connection."""

from __future__ import annotations

import logging
import socket
from typing import Any

from headrace.coordinator.core import Coordinator
from headrace.errors import HeadraceError
from headrace.wire.frames import send_frame
from headrace.wire.listener import Listener, tcp_socket

log = logging.getLogger("headrace.coordinator")


def open_door(coordinator: Coordinator, bind: str, secret: str) -> Listener:
    """Opens a listener that answers requests until it is closed."""

    def handle(peer: socket.socket, request: dict[str, Any]) -> None:
        send_frame(peer, answered(coordinator, request))

    listener = Listener(tcp_socket(bind), secret, handle)
    listener.start()
    return listener


def answered(coordinator: Coordinator, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, or the error as JSON."""
    try:
        return {"answer": coordinator.act(str(request["action"]), request["request"])}
    except HeadraceError as error:
        failed = error
    except Exception as error:
        log.exception("a request failed")
        failed = HeadraceError(
            f"{type(error).__name__}: {error}", hint="the traceback is in the driver's log"
        )
    details = {"error": type(failed).__name__, "message": failed.message, "hint": failed.hint}
    return {"error": details}
