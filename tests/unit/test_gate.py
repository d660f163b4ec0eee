"""Protects host and driver from callers without the secret: their messages are refused before they are
collected in memory, and callers with the secret notice nothing.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.coordinator.server import CoordinatorServer
from headrace.wire.calls import call, connect
from headrace.wire.gate import UNPROVEN_BYTES, Gate
from headrace.wire.listener import tcp_socket
from headrace.wire.secret import bearer, new_secret

SECRET = new_secret()


class Sink:
    """A server behind a gate: counts what reaches it, and answers the end of a request."""

    def __init__(self, path: Path) -> None:
        self.received = bytearray()
        self.is_over = threading.Event()
        self._at = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._at.bind(str(path))
        self._at.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        peer, _ = self._at.accept()
        with peer:
            while chunk := peer.recv(1 << 16):
                self.received += chunk
            with suppress(OSError):  # the gate has closed the connection
                peer.sendall(b"answer")
        self.is_over.set()

    def close(self) -> None:
        self._at.close()


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    server = Sink(tmp_path / "s")
    yield server
    server.close()


@pytest.fixture
def client(sink: Sink, tmp_path: Path) -> Iterator[socket.socket]:
    gate = Gate(tcp_socket("127.0.0.1"), SECRET, tmp_path / "s")
    gate.start()
    with socket.create_connection(("127.0.0.1", gate.port), timeout=30) as connection:
        yield connection
    gate.close()


def test_little_of_a_message_without_the_secret_reaches_the_server(
    sink: Sink, client: socket.socket
) -> None:
    def send() -> None:
        for _ in range(200):
            client.sendall(bytes(1 << 20))

    with pytest.raises(OSError, match=r"(?i)reset|broken pipe"):
        send()
    assert sink.is_over.wait(30)
    assert len(sink.received) <= UNPROVEN_BYTES


def test_a_message_with_the_secret_passes_whole(sink: Sink, client: socket.socket) -> None:
    header = b"x" * 1000 + bearer(SECRET)[1]
    client.sendall(header[:1050])  # the secret comes in two parts
    client.sendall(header[1050:])
    client.sendall(bytes(5 << 20))
    client.shutdown(socket.SHUT_WR)
    assert client.recv(100) == b"answer"
    assert bytes(sink.received) == header + bytes(5 << 20)


@pytest.fixture
def driver() -> Iterator[CoordinatorServer]:
    def act(kind: str, request: dict[str, Any]) -> dict[str, Any]:
        return {"kind": kind, "size": len(request.get("text", ""))}

    server = CoordinatorServer(SimpleNamespace(act=act), "127.0.0.1", SECRET)  # type: ignore[arg-type]
    yield server
    server.shutdown()


def test_the_driver_answers_those_with_the_secret_and_cuts_the_others_off(
    driver: CoordinatorServer,
) -> None:
    address = f"grpc+tcp://127.0.0.1:{driver.port}"
    with connect(address) as client:
        answer = call(client, SECRET, "echo", {"text": "x" * (8 << 20)}, 60.0)
        assert answer == {"kind": "echo", "size": 8 << 20}
    with connect(address) as stranger, pytest.raises(flight.FlightUnavailableError):
        list(stranger.do_action(flight.Action("echo", pa.py_buffer(bytes(32 << 20)))))
    with connect(address) as stranger, pytest.raises(flight.FlightUnauthenticatedError):
        list(stranger.do_action(flight.Action("echo", b"")))
