"""Redis's protocol (RESP 2): commands as bytes, and an incremental parser of replies.

    command = *<parts>\\r\\n then per part $<length>\\r\\n<bytes>\\r\\n
    reply   = +text | -error | :integer | $length bytes | *count replies; a length of -1 is null

Threads: one parser belongs to one connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Reply = Any  # bytes, int, None, `ErrorReply`, or a list of replies
Part = bytes | str | int | float

_END = b"\r\n"


class ErrorReply(Exception):
    """An error that the server replied with; `code` is its first word."""

    @property
    def code(self) -> str:
        return str(self.args[0]).partition(" ")[0]


class ProtocolError(Exception):
    """Bytes that are no reply: the other side is not Redis."""


def encoded(command: Iterable[Part]) -> bytes:
    """A command as the server reads it."""
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
    lines = [b"*%d\r\n" % len(parts)]
    for part in parts:
        lines += [b"$%d\r\n" % len(part), part, _END]
    return b"".join(lines)


class Parser:
    """Turns bytes into replies; a reply may arrive in any number of pieces."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0
        self._open: list[tuple[int, list[Reply]]] = []  # arrays under way: their length and elements

    def feed(self, data: bytes) -> list[Reply]:
        """Adds bytes; returns the replies that are complete now."""
        self._data += data
        replies: list[Reply] = []
        while (element := self._element()) is not None:
            value = element[0]
            while True:
                if not self._open:
                    replies.append(value)
                    break
                count, items = self._open[-1]
                items.append(value)
                if len(items) < count:
                    break
                value = self._open.pop()[1]
        del self._data[: self._at]
        self._at = 0
        return replies

    def _element(self) -> tuple[Reply] | None:
        """The next complete element; None if bytes are missing."""
        while True:
            end = self._data.find(_END, self._at)
            if end < 0:
                return None
            kind, line = self._data[self._at], bytes(self._data[self._at + 1 : end])
            if kind == ord("$"):
                return self._bulk(int(line), end + 2)
            self._at = end + 2
            if kind != ord("*"):
                return (_simple(kind, line),)
            count = int(line)
            if count <= 0:
                return (None if count < 0 else [],)
            self._open.append((count, []))

    def _bulk(self, length: int, start: int) -> tuple[Reply] | None:
        if length < 0:
            self._at = start
            return (None,)
        end = start + length
        if len(self._data) < end + 2:
            return None
        self._at = end + 2
        return (bytes(self._data[start:end]),)


def _simple(kind: int, line: bytes) -> Reply:
    if kind == ord("+"):
        return line
    if kind == ord(":"):
        return int(line)
    if kind == ord("-"):
        return ErrorReply(line.decode(errors="replace"))
    raise ProtocolError(f"a reply that begins with {bytes([kind])!r}")
