"""Plain sockets: JSON in frames of four bytes of length and UTF-8, and Arrow streams between them.

It is what the JVM speaks, which has no Flight. Threads: one per connection.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from typing import Any

import pyarrow as pa

from headrace.errors import TryAgain

FRAME_MAX = 64 << 20
_LENGTH = struct.Struct(">i")


class PeerGone(TryAgain):
    """The other side of a connection is no longer there."""


def receive_exactly(peer: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    _fill(peer, memoryview(data))
    return bytes(data)


def receive_frame(peer: socket.socket) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(receive_exactly(peer, _LENGTH.size))
    if not 0 <= length <= FRAME_MAX:
        raise PeerGone(f"a frame of {length} bytes is none of ours")
    received: dict[str, Any] = json.loads(receive_exactly(peer, length))
    return received


def send_frame(peer: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    peer.sendall(_LENGTH.pack(len(body)) + body)


def is_closed(peer: socket.socket) -> bool:
    """Whether the other side has closed its end; nothing is read."""
    readable, _, _ = select.select([peer], [], [], 0)
    try:
        return bool(readable) and peer.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


def _fill(peer: socket.socket, target: memoryview) -> None:
    at = 0
    while at < len(target):
        try:
            count = peer.recv_into(target[at:])
        except OSError as error:
            raise PeerGone(f"the connection broke: {error}") from None
        if count == 0:
            raise PeerGone("the other side closed the connection")
        at += count


class SocketFile:
    """A socket as Arrow reads and writes a file: into Arrow's own buffers, without a copy."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self.closed = False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def read_buffer(self, count: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(count)
        _fill(self._peer, memoryview(buffer))
        return buffer

    def read(self, count: int) -> bytes:
        return receive_exactly(self._peer, count)

    def write(self, data: Any) -> int:
        self._peer.sendall(data)
        return len(data)

    def flush(self) -> None:
        """Everything is sent at once."""

    def close(self) -> None:
        self.closed = True
