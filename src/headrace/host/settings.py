"""What a host is told when it is started, and where its files lie.

<local>/copies/…                 0700, copies of objects (`blob/copies.py`)
<local>/<application>/           0700
    host-<machine>.log           kept
    host-<machine>.ready         JSON: address, tcp, pid; there while the host answers
    host-<machine>.start         locked by the task that starts the host
    host-<machine>.alive         locked by the host for life
    scratch-<machine>/           the host's own; removed when it leaves
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

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
    service: str = "headrace.host.service:open_service"  # called with memory_bytes and local
    warm: bool = True  # make the kernels ready first

    def __repr__(self) -> str:
        return f"HostSettings({self.application}, {self.machine}, {self.local})"

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
        folder = Path(settings.local).absolute() / safe(settings.application)
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
        """Create the folder, closed to other users."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.refuse_strangers()
        self.folder.chmod(0o700)

    def refuse_strangers(self) -> None:
        """Raise when another user made the folder, or its parent where anyone may make one.

        Whoever owns them can put an address there, and a task shows the secret to that address.
        """
        local = self.folder.parent
        anyone_makes_it = bool(local.parent.stat().st_mode & stat.S_IWOTH)
        if self.folder.lstat().st_uid != os.getuid():
            raise _stranger(self.folder)
        if anyone_makes_it and local.lstat().st_uid not in (0, os.getuid()):
            raise _stranger(local)


def _stranger(path: Path) -> PermissionError:
    return PermissionError(
        f"{path} belongs to another user; set spark.headrace.state.local to a directory of your own"
    )
