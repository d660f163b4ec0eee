"""A real Redis server on loopback, for tests and demonstrations; it keeps its data over a restart.

    with RedisServer(folder) as server:
        server.url

Threads: none; the server is a process of its own, and ends with `stop`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType

from headrace.clock import SYSTEM_CLOCK, wait_until
from headrace.errors import HostUnavailable

EXECUTABLE = "redis-server"
START_WITHIN_MS = 20_000


def is_installed() -> bool:
    """Whether this machine has a Redis server."""
    return shutil.which(EXECUTABLE) is not None


class RedisServer:
    """Runs from `start` to `stop`; a context manager does both."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Starts the server with the data of the last time, and waits until it listens."""
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",
            "loglevel": "warning",
        }
        command = [EXECUTABLE, *(part for name, value in options.items() for part in (f"--{name}", value))]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not wait_until(self._listens, START_WITHIN_MS, 20, SYSTEM_CLOCK):
            self.stop()
            raise HostUnavailable(f"{EXECUTABLE} did not start", hint=f"look into {self._folder}")

    def stop(self) -> None:
        """Ends the server; its data stays in the folder."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait()

    def kill(self) -> None:
        """Ends the server without a farewell; open connections break."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
