"""Azurite, the emulator of Azure's storage, on loopback: a process that keeps everything in memory.

    with Azurite() as server, server.environment():
        ObjectBlobs.open(server.location("state"), …)

`npm install --global azurite` installs it.
Threads: none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException

from headrace.clock import SYSTEM_CLOCK, wait_until
from headrace.errors import HostUnavailable
from headrace.testing.faults.environment import environment_of

EXECUTABLE = "azurite-blob"
START_WITHIN_MS = 60_000
CONTAINER = "headrace-tests"
_ACCOUNT = "devstoreaccount1"  # of every Azurite, with this key
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"


def is_installed() -> bool:
    """Whether this machine has Azurite."""
    return shutil.which(EXECUTABLE) is not None


class Azurite:
    """Runs from `start` to `stop`; a context manager does both."""

    def __init__(self) -> None:
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server with one empty container."""
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(self._port), "--silent"]
        flags = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
        self._process = subprocess.Popen(
            [EXECUTABLE, *options, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if not wait_until(self._answers, START_WITHIN_MS, 50, SYSTEM_CLOCK):
            self.stop()
            raise HostUnavailable(f"{EXECUTABLE} did not start", hint="run it by hand, and read its output")
        self.make_container(CONTAINER)

    def stop(self) -> None:
        """Ends the server, with all blobs."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait()

    def __enter__(self) -> Azurite:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}/{_ACCOUNT}"

    def location(self, prefix: str = "") -> str:
        """A state location on this server."""
        return f"az://{CONTAINER}/{prefix}".rstrip("/")

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables with which a process reaches this server and no other."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "NO_PROXY": "127.0.0.1",
        }

    def environment(self) -> AbstractContextManager[None]:
        """Sets `variables` in this process until the block ends."""
        return environment_of(self.variables)

    def make_container(self, name: str) -> None:
        status = self._status("PUT", f"/{_ACCOUNT}/{name}?restype=container", _signed(name))
        if status != 201:
            raise HostUnavailable(
                f"{EXECUTABLE} refuses a container with status {status}", hint="install a newer Azurite"
            )

    def _answers(self) -> bool:
        try:
            self._status("GET", "/", {})
        except (OSError, HTTPException):
            return False
        return True

    def _status(self, method: str, path: str, headers: Mapping[str, str]) -> int:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request(method, path, headers=dict(headers))
            return connection.getresponse().status
        finally:
            connection.close()


def _signed(container: str) -> Mapping[str, str]:
    """The headers of a request that creates a container, signed with the account's key."""
    dated = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    named = "".join(f"{name}:{value}\n" for name, value in dated.items())
    text = "PUT" + 12 * "\n" + f"{named}/{_ACCOUNT}/{_ACCOUNT}/{container}\nrestype:container"
    digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    return {**dated, "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
