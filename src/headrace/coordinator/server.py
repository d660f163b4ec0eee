"""The coordinator's Flight server: JSON actions, each with the application's secret.

The server listens on a Unix socket in a directory of its own; a gate stands before it on the network.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pyarrow import flight

from headrace.coordinator.core import Coordinator
from headrace.wire.calls import answer, errors_cross, request_of
from headrace.wire.gate import Gate
from headrace.wire.listener import tcp_socket
from headrace.wire.secret import SecretRequired

_SOCKET_PATH_MAX = 100  # the kernel's limit is about 107 bytes


class CoordinatorServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from construction until `shutdown`."""

    def __init__(self, coordinator: Coordinator, bind: str, secret: str) -> None:
        self._folder = _private_folder()
        path = self._folder / "c.sock"
        super().__init__(f"grpc+unix://{path}", middleware={"secret": SecretRequired(secret)})
        self._coordinator = coordinator
        self._socket = _detached(path)
        self._gate = Gate(
            tcp_socket(bind), secret, path if self._socket is None else _open_path(self._socket)
        )
        self._gate.start()

    @property
    def port(self) -> int:
        """The gate's port."""
        return self._gate.port

    def do_action(self, context: Any, action: Any) -> list[flight.Result]:
        with errors_cross():
            return [answer(self._coordinator.act(action.type, request_of(action)))]

    def shutdown(self) -> None:
        self._gate.close()
        super().shutdown()
        if self._socket is not None:
            os.close(self._socket)
            self._socket = None
        shutil.rmtree(self._folder, ignore_errors=True)


def _detached(path: Path) -> int | None:
    """A descriptor through which the socket is reached once its files are removed.

    A driver that is killed then leaves no files. None, and the files stay, if the system cannot do that.
    """
    if not hasattr(os, "O_PATH") or not Path("/proc/self/fd").exists():
        return None
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    shutil.rmtree(path.parent, ignore_errors=True)
    return descriptor


def _open_path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")


def _private_folder() -> Path:
    """A new 0700 directory whose path leaves room for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="hr-"))
    if len(str(folder)) < _SOCKET_PATH_MAX - 10:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="hr-", dir="/tmp"))
