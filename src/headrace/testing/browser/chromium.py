"""Drives Debian's chromium over its debugging protocol, with tornado alone.

Every request that a page makes is noted, so that a test can see that none leaves the machine.
Threads: one, the caller's, with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlparse
from urllib.request import urlopen

from headrace.clock import SystemClock

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--hide-scrollbars",
)
WITHIN_MS = 30_000
T = TypeVar("T")


def chromium() -> str | None:
    """Where the browser is; None when there is none."""
    return shutil.which("chromium")


class Browser:
    """One page of a headless chromium. Use it in a `with` statement."""

    def __init__(self, width: int = 1500, height: int = 930, niceness: int = 0) -> None:
        self.hosts: set[str] = set()  # that the page has sent a request to
        self.errors: list[str] = []  # of the page's scripts
        self._size = f"--window-size={width},{height}"
        self._niceness = niceness
        self._numbers = itertools.count(1)
        self._clock = SystemClock()

    def __enter__(self) -> Browser:
        self._folder = tempfile.mkdtemp(prefix="browser-")
        path = chromium() or "chromium"
        first = ["nice", "-n", str(self._niceness)] if self._niceness else []
        command = [*first, path, *FLAGS, self._size, f"--user-data-dir={self._folder}", "about:blank"]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._loop = asyncio.new_event_loop()
        self._socket = self._run(self._connect())
        for domain in ("Network", "Page", "Runtime"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._disconnect())
        self._process.terminate()
        self._process.wait()
        self._run(asyncio.sleep(0))
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """The value of a script's expression."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        return answer["result"].get("value")

    def until(self, expression: str, met: Callable[[Any], bool] = bool) -> Any:
        """Wait until an expression's value meets a condition; raises when it does not in time."""
        deadline, value = self._clock.monotonic_ms() + WITHIN_MS, None
        while self._clock.monotonic_ms() < deadline:
            value = self.js(expression)
            if met(value):
                return value
            self._run(asyncio.sleep(0.1))
        raise TimeoutError(f"{expression} is still {value!r}")

    def text(self) -> str:
        """The text of the page, with that of its components."""
        return str(self.js(_TEXT) or "")

    def until_text(self, part: str) -> str:
        """Wait until the page's text contains a part."""
        return str(self.until(_TEXT, lambda text: text is not None and part in text))

    def screenshot(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))
        return path

    def heap_bytes(self) -> int:
        """Memory of the page's scripts after a collection."""
        self._call("HeapProfiler.collectGarbage")
        return int(self._call("Runtime.getHeapUsage")["usedSize"])

    def _call(self, method: str, **parameters: object) -> Any:
        return self._run(self._answer(method, parameters))

    async def _answer(self, method: str, parameters: dict[str, object]) -> Any:
        number = next(self._numbers)
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(await self._socket.read_message())
            self._note(message)
            if message.get("id") == number:
                return message.get("result", {})

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            url = urlparse(parameters["request"]["url"])
            if url.scheme not in ("data", "blob"):
                self.hosts.add(url.hostname or "")
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:500])

    async def _disconnect(self) -> None:
        self._socket.close()

    async def _connect(self) -> Any:
        from tornado.websocket import websocket_connect

        port_file, deadline = (
            Path(self._folder, "DevToolsActivePort"),
            self._clock.monotonic_ms() + WITHIN_MS,
        )
        while not port_file.exists() or not port_file.read_text().strip():
            if self._clock.monotonic_ms() > deadline:
                raise TimeoutError("chromium did not start")
            await asyncio.sleep(0.1)
        port = port_file.read_text().split()[0]
        with urlopen(f"http://127.0.0.1:{port}/json") as answer:
            tabs = json.load(answer)
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        return await websocket_connect(address, max_message_size=1 << 28)

    def _run(self, work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        return self._loop.run_until_complete(work)


# Bokeh puts each component into a shadow tree of its own.
_TEXT = """(() => { const walk = n => (n.nodeType === 3 ? n.data : "") +
 [...(n.shadowRoot ? n.shadowRoot.childNodes : []), ...n.childNodes].filter(c => c.nodeName !== "STYLE" &&
  c.nodeName !== "SCRIPT").map(walk).join(" "); return document.body ? walk(document.body) : null })()"""
