"""A Redis connection on an event loop: commands of many callers travel together, replies come in order.

A lost connection fails all commands under way with `StoreDown`; the next command connects again.
Threads: the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any

from headrace.outside.address import Address
from headrace.outside.errors import StoreDown, StoreRefused
from headrace.outside.resp import ErrorReply, Parser, Part, ProtocolError, Reply, encoded
from headrace.plan.times import TIMES

_PASSING = ("LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN")  # errors that end by themselves


class RedisClient:
    """Commands to one server."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._line: _Line | None = None
        self._connecting = asyncio.Lock()

    async def execute(self, *command: Part) -> Reply:
        """The reply to one command."""
        return (await self.pipeline([command]))[0]

    async def pipeline(self, commands: Sequence[Sequence[Part]]) -> list[Reply]:
        """The replies to commands that are sent together; raises the first error among them."""
        line = await self._connected()
        try:
            async with asyncio.timeout(TIMES.lookup_answer_s):
                replies = await line.send(commands)
        except TimeoutError:
            await self.close()
            raise self._down(f"no answer within {TIMES.lookup_answer_s:g} s") from None
        except (OSError, ProtocolError) as error:
            await self.close()
            raise self._down(error) from None
        for reply in replies:
            if isinstance(reply, ErrorReply):
                raise self._refused(reply)
        return replies

    async def close(self) -> None:
        """Closes the connection; the next command opens another one."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    async def _connected(self) -> _Line:
        async with self._connecting:
            if self._line is None or self._line.is_lost:
                try:
                    async with asyncio.timeout(TIMES.lookup_connect_s):
                        self._line = await self._connect()
                except (OSError, ProtocolError) as error:  # a timeout is an OSError, too
                    raise self._down(error) from None
            return self._line

    async def _connect(self) -> _Line:
        address, loop = self._address, asyncio.get_running_loop()
        if address.path:
            _, line = await loop.create_unix_connection(_Line, address.path)
        else:
            context = ssl.create_default_context() if address.is_tls else None
            _, line = await loop.create_connection(_Line, address.host, address.port, ssl=context)
        for command in greeting(address):
            reply = (await line.send([command]))[0]
            if isinstance(reply, ErrorReply):
                line.close()
                raise self._refused(reply)
        return line

    def _down(self, reason: object) -> StoreDown:
        return StoreDown(
            f"Redis at {self._address!r} does not answer: {reason or 'no answer in time'}",
            hint="start the server, or check the address; the same batch runs again after a restart",
        )

    def _refused(self, reply: ErrorReply) -> StoreDown | StoreRefused:
        if reply.code in _PASSING:
            return self._down(reply)
        return StoreRefused(
            f"Redis at {self._address!r} refused a command: {reply}",
            hint="check the user's rights, the database, and the kind of the keys",
        )


def greeting(address: Address) -> list[tuple[Part, ...]]:
    """The commands that open a connection."""
    commands: list[tuple[Part, ...]] = []
    if address.password:
        user = (address.user,) if address.user else ()
        commands.append(("AUTH", *user, address.password))
    if address.database:
        commands.append(("SELECT", address.database))
    return commands


class _Line(asyncio.Protocol):
    """One connection: each batch of commands waits for its replies."""

    def __init__(self) -> None:
        self._parser = Parser()
        self._transport: Any = None
        self._waiting: deque[tuple[int, list[Reply], asyncio.Future[list[Reply]]]] = deque()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            replies = self._parser.feed(data)
        except (ProtocolError, ValueError) as error:
            self._lose(ProtocolError(str(error)))
            return
        for reply in replies:
            count, batch, future = self._waiting[0]
            batch.append(reply)
            if len(batch) == count:
                self._waiting.popleft()
                if not future.done():
                    future.set_result(batch)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(error or ConnectionResetError("the connection was closed"))

    def send(self, commands: Sequence[Sequence[Part]]) -> asyncio.Future[list[Reply]]:
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        if self.is_lost:
            future.set_exception(ConnectionResetError("the connection was closed"))
        elif not commands:
            future.set_result([])
        else:
            self._waiting.append((len(commands), [], future))
            self._transport.write(b"".join(map(encoded, commands)))
        return future

    def close(self) -> None:
        self._lose(ConnectionResetError("the connection was closed"))

    def _lose(self, error: Exception) -> None:
        self.is_lost = True
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            future = self._waiting.popleft()[2]
            if not future.done():
                future.set_exception(error)
