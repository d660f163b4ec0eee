"""A client of the live view that takes what a browser would take, and renders nothing.

`python -m headrace.bench.page_client <url>` prints `open` when it has the page's document, and `changed`
at its first change; it reads until it is ended. It shows what an open page costs the driver, without the
browser, which is on the machine of its user.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO
from urllib.request import urlopen

from headrace.errors import HeadraceError

_TOKEN = re.compile(r'"token":"([^"]+)"')
_REQUEST = ('{"msgid":"1","msgtype":"PULL-DOC-REQ"}', "{}", "{}")  # header, metadata and content


@contextmanager
def reading(url: str) -> Iterator[IO[str]]:
    """The output of a process that has the page at `url` open."""
    command = [sys.executable, "-m", "headrace.bench.page_client", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            if client.stdout.readline().strip() != "open":
                raise HeadraceError("the client of the view got no page", hint="its output has the reason")
            yield client.stdout
        finally:
            client.kill()


async def _read(url: str) -> None:
    from tornado.websocket import websocket_connect

    with urlopen(url) as reply:
        page = reply.read().decode()
    token = _TOKEN.search(page)
    if token is None:
        raise HeadraceError(f"{url} has no session", hint="take the address that hr.view gives")
    address = url.replace("http://", "ws://", 1) + "ws"
    socket = await websocket_connect(address, subprotocols=["bokeh", token[1]])
    signs = {'"PULL-DOC-REPLY"': "open", '"PATCH-DOC"': "changed"}
    while (message := await socket.read_message()) is not None:
        if isinstance(message, str) and '"ACK"' in message:  # the server takes no request before
            for part in _REQUEST:
                await socket.write_message(part)
        for sign in [sign for sign in signs if isinstance(message, str) and sign in message]:
            print(signs.pop(sign), flush=True)


if __name__ == "__main__":
    asyncio.run(_read(sys.argv[1]))
