"""The state host's process, from its settings to its last file removed.

Invariants: the `alive` lock is held from before the state is opened until the process is gone. The ready
file exists only while the host answers. On every orderly way out socket, ready file and scratch are
removed and the log stays.
Threads: main waits; gRPC serves; one heartbeat; a watchdog ends a shutdown that hangs.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import resource
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, urlparse

from headrace.host.ahead.hints import HintDoor
from headrace.host.process.door import Door
from headrace.host.process.farewell import Farewell
from headrace.host.process.heartbeat import Heartbeat
from headrace.host.process.libraries import release_library_pages
from headrace.host.process.locks import lock_within, one_at_a_time, remove_socket, socket_path
from headrace.host.process.log_file import RotatingLog
from headrace.host.process.server import HostCore, HostServer
from headrace.host.process.settings import HostPaths, HostSettings
from headrace.plan.times import TIMES
from headrace.wire.contract import StateService
from headrace.wire.gate import Gate
from headrace.wire.listener import Listener, tcp_socket, unix_socket

log = logging.getLogger("headrace.host")

Entrance = TypeVar("Entrance", Listener, Gate)

_OTHER_HOST_MS = 2_000.0  # a host that lost the race for the lock gives up after this time


def main(line: str) -> int:
    """Runs a host until a request or a signal stops it, or its driver is gone."""
    if not line.strip():
        print("no settings on standard input", file=sys.stderr)
        return 2
    settings = HostSettings.from_json(line)
    paths = HostPaths.of(settings)
    paths.make()
    logging.basicConfig(level=logging.INFO, handlers=[RotatingLog(paths.log)])
    alive = lock_within(paths.alive, _OTHER_HOST_MS)
    if alive is None:
        log.info("another host serves %s", settings.machine)
        return 0
    os.ftruncate(alive, 0)
    os.write(alive, f"{os.getpid()}\n".encode())  # for messages about a host that never gets ready
    try:
        return Host(settings, paths).run()
    except Exception:
        log.exception("the host could not start")
        return 1


class Host:
    """One run of the process."""

    def __init__(self, settings: HostSettings, paths: HostPaths) -> None:
        self._settings = settings
        self._paths = paths
        self._farewell = Farewell()
        self._sockets: list[Path] = []
        self._temporary = tempfile.gettempdir()  # the machine's; stores get a folder of this host's
        self._servers: list[HostServer] = []
        self._doors: list[Listener | Gate] = []

    def run(self) -> int:
        allow_many_files()
        heartbeat = Heartbeat(self._settings, self._farewell.ask)
        heartbeat.start()
        log.info("host %s of %s, pid %d", self._settings.machine, self._settings.application, os.getpid())
        service: StateService | None = None
        try:
            service = self._open()
            core = HostCore(service, self._farewell.ask)
            addresses = self._listen(core)
            heartbeat.listening(addresses, service, core.errors)
            self._announce(addresses)
            self._farewell.wait()
        finally:
            self._end_hard_if_stuck()
            self._farewell.close()
            heartbeat.stop()
            self._leave(service)
        return 0

    def _open(self) -> StateService:
        shutil.rmtree(self._paths.scratch, ignore_errors=True)
        self._paths.scratch.mkdir(mode=0o700)
        tempfile.tempdir = str(self._paths.scratch)  # whatever a store puts aside goes when the host does
        if self._settings.warm:
            warm_kernels()
        opener = open_by_name(self._settings.service)
        return opener(self._settings.memory_bytes, self._settings.folder)

    def _listen(self, core: HostCore) -> dict[str, str]:
        # Only now: nobody knows the folders of a host that is killed before it is ready.
        flight, plain = self._new_socket(".sock"), self._new_socket("-door.sock")
        address, secret = f"grpc+unix://{flight}", self._settings.secret
        door = Door(core.service, core.errors, HintDoor(core.service, secret), secret)
        self._servers.append(HostServer(core, address, self._settings.secret))
        self._open_door(Listener(unix_socket(plain), secret, door))
        addresses = {"unix": address, "door": str(plain)}
        if self._settings.tcp:
            host = address_towards(self._settings.coordinator)
            gate = self._open_door(Gate(tcp_socket(host), self._settings.secret, flight))
            addresses["tcp"] = f"grpc+tcp://{host}:{gate.port}"
            opened = self._open_door(Listener(tcp_socket(host), secret, door))
            addresses["tcp_door"] = f"{host}:{opened.port}"
        return addresses

    def _new_socket(self, end: str) -> Path:
        name = f"{self._paths.socket_stem}{os.getpid():x}{end}"
        path = socket_path(self._paths.folder, name, self._temporary)
        self._sockets.append(path)
        return path

    def _remove_sockets(self) -> None:
        for path in self._sockets:
            remove_socket(path)

    def _open_door(self, door: Entrance) -> Entrance:
        self._doors.append(door)
        door.start()
        return door

    def _announce(self, addresses: dict[str, str]) -> None:
        ready = {"address": addresses["unix"], "tcp": addresses.get("tcp"), "pid": os.getpid()}
        ready["door"] = addresses["door"]
        write_atomically(self._paths.ready, json.dumps(ready))
        log.info("ready: %s", ready)

    def _leave(self, service: StateService | None) -> None:
        log.info("leaving")
        self._paths.ready.unlink(missing_ok=True)
        for door in self._doors:
            door.close()
        for server in self._servers:
            server.shutdown()
        if service is not None:
            service.close()
        self._remove_sockets()
        shutil.rmtree(self._paths.scratch, ignore_errors=True)
        log.info("gone")

    def _end_hard_if_stuck(self) -> None:
        """A call that never returns must not keep the process: what it would write is not committed."""

        def end() -> None:
            log.error("shutdown took too long; ending at once")
            self._remove_sockets()
            shutil.rmtree(self._paths.scratch, ignore_errors=True)
            os._exit(1)

        watchdog = threading.Timer(TIMES.host_leave_s, end)
        watchdog.daemon = True
        watchdog.start()


def allow_many_files() -> None:
    """As many open files as the system lets the process have: every segment of a partition is open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def warm_kernels() -> None:
    """Compile or load the kernels, one host at a time: Numba's cache has crashed under two writers."""
    kernels = importlib.util.find_spec("headrace.kernels")
    if kernels is None or importlib.util.find_spec("headrace.kernels.warm") is None:
        return
    folder = Path(kernels.origin or __file__).parent
    with one_at_a_time(folder):
        importlib.import_module("headrace.kernels.warm").warm()
        release_library_pages()


def open_by_name(name: str) -> Callable[[int, Path], StateService]:
    """The function that `module:function` names, with the arguments of `module:function?name=value&…`."""
    path, _, arguments = name.partition("?")
    module, _, function = path.partition(":")
    opener: Callable[..., StateService] = getattr(importlib.import_module(module), function)
    return partial(opener, **dict(parse_qsl(arguments, strict_parsing=bool(arguments))))


def address_towards(coordinator: str) -> str:
    """This machine's address as the coordinator's network sees it."""
    target = urlparse(coordinator)
    family = socket.AF_INET6 if ":" in (target.hostname or "") else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # UDP connects without sending anything
        probe.connect((target.hostname, target.port or 1))
        return str(probe.getsockname()[0])


def write_atomically(path: Path, text: str) -> None:
    """Readers see the whole text or the file that was there before."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
