"""The settings that a host gets at its start, and where its files lie.

<local>/copies/…                 0700, copies of objects (`blob/copies.py`)
<local>/<application>/           0700
    host-<machine>.log           kept, with the file before it (.log.1)
    host-<machine>.ready         JSON: address, tcp, pid; there while the host answers
    host-<machine>.start         locked by the task that starts the host
    host-<machine>.alive         locked by the host for life
    scratch-<machine>/           the host's own; removed when it leaves
"""

from __future__ import annotations

import json
import os
import re
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.blob.private import make_private, refuse_way
from headrace.plan.options import local_on

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class HostSettings:
    """One host of one application on one machine. The secret stays out of `repr` and so out of logs."""

    application: str
    machine: str
    coordinator: str  # address of the coordinator
    secret: str
    local: str  # directory on the machine's own disk
    memory_bytes: int
    tcp: bool = False  # also listen where other machines can reach it
    service: str = "headrace.host.state.service:open_service"  # called with memory_bytes and local
    warm: bool = True  # make the kernels ready first

    def __repr__(self) -> str:
        return f"HostSettings({self.application}, {self.machine}, {self.local})"

    @property
    def folder(self) -> Path:
        """The local directory of this machine."""
        return Path(local_on(self.local, safe(self.machine))).absolute()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> HostSettings:
        return cls(**json.loads(text))


def safe(name: str) -> str:
    """A name that is one harmless path component."""
    return _UNSAFE.sub("_", name).lstrip(".") or "_"


@dataclass(frozen=True)
class HostPaths:
    """Where one host's files lie."""

    folder: Path
    log: Path
    ready: Path
    start: Path
    alive: Path
    scratch: Path
    socket_stem: str  # differs between the machines that share a folder in tests

    @classmethod
    def of(cls, settings: HostSettings) -> HostPaths:
        folder = settings.folder / safe(settings.application)
        machine = safe(settings.machine)
        return cls(
            folder=folder,
            log=folder / f"host-{machine}.log",
            ready=folder / f"host-{machine}.ready",
            start=folder / f"host-{machine}.start",
            alive=folder / f"host-{machine}.alive",
            scratch=folder / f"scratch-{machine}",
            socket_stem=f"h-{zlib.crc32(machine.encode()):08x}-",
        )

    def make(self) -> None:
        """Makes the folder, closed to other users."""
        make_private(self.folder)

    def refuse_strangers(self) -> None:
        """Raises if another user made the folder, or a part of the way to it.

        Whoever owns them can put an address there, and a task shows the secret to that address.
        """
        refuse_way(self.folder)
        if self.folder.lstat().st_uid != os.getuid():
            raise PermissionError(
                f"{self.folder} belongs to another user; set spark.headrace.state.local to a directory of "
                "your own"
            )
